// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `row_schedule`: the schedule of matrix products (tile/gemm_schedule.hpp) whose results are reduced along rows: each
/// worker stays with a row of tiles until its share of it is done, so that it can keep what it reduces.
///
///     row_schedule const schedule = row_schedule::make(32, 1000, 36, 66);     // tiles: 32 x 1000; 66 workers
///     schedule.splits;                                                        // 2 workers share each row
///
/// A share is every `splits`-th tile of a row. All workers walk from the first to the last column in step, so that
/// columns of the second operand come out of a cache. A worker takes every `workers`-th work, as in gemm_on_warpgroups.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/tile/gemm_schedule.hpp>

namespace tessera {
inline namespace v0 {

struct row_schedule {
  std::int32_t rows;     ///< of tiles
  std::int32_t columns;  ///< likewise
  std::int32_t pieces;   ///< of the depth
  std::int32_t splits;   ///< shares of a row
  std::int32_t workers;
  std::int32_t steps;  ///< works of a share; the last one of some shares is beyond the columns, and empty

  /// With as many shares as keep all workers busy, at most `most_splits`.
  [[nodiscard]] static constexpr row_schedule make(std::int32_t rows, std::int32_t columns, std::int32_t pieces,
                                                   std::int32_t most_workers, std::int32_t most_splits = 0x7fffffff) {
    const std::int32_t splits = clamp(most_workers / max(rows, 1), 1, max(min(columns, most_splits), 1));
    const auto shares = min(std::int64_t{rows} * splits, std::int64_t{most_workers});
    return {rows,
            columns,
            pieces,
            splits,
            static_cast<std::int32_t>(max(shares, std::int64_t{1})),
            divide_up(columns, splits)};
  }

  [[nodiscard]] TESSERA_FN constexpr std::int32_t count() const {
    return workers * steps * divide_up(rows * splits, workers);
  }
  [[nodiscard]] TESSERA_FN constexpr gemm_work at(std::int32_t index) const {
    const std::int32_t turn = index / workers;
    const std::int32_t share = turn / steps * workers + index % workers;
    const std::int32_t row = share / splits;
    const std::int32_t column = share % splits + turn % steps * splits;
    return {row, column, 0, row < rows && column < columns ? pieces : 0};
  }
  [[nodiscard]] TESSERA_FN constexpr std::int32_t piece(std::int32_t k) const { return k; }

  [[nodiscard]] TESSERA_FN constexpr std::int32_t split_of(std::int32_t column) const { return column % splits; }
  [[nodiscard]] TESSERA_FN constexpr bool is_first(std::int32_t column) const { return column < splits; }
  [[nodiscard]] TESSERA_FN constexpr bool is_last(std::int32_t column) const { return column / splits == steps - 1; }
};

}  // namespace v0
}  // namespace tessera
