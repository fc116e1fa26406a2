// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Schedules of matrix products: which tiles there are, in which order they are computed, and over which pieces of the
/// depth each is summed.
///
///     dense_schedule{{32, 32, 8}, 128}              // all tiles of 32 x 32, in bands of 8, over all 128 pieces
///     listed_schedule{tiles, count, pieces}         // these tiles, each over its own list of pieces
///
/// A schedule is trivially copyable and has count(); at(i), the work number i, for all i below count(); and piece(k),
/// the number of the piece that is k-th in its list. Work is taken in order by whoever is free (a thread block takes
/// every n-th), so lists of works of different lengths begin with the longest. A user's own may keep a row of tiles for
/// a block, or compute lists on the fly.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/tile/tile_order.hpp>

namespace tessera {
inline namespace v0 {

/// One tile.
struct gemm_work {
  std::int32_t row;     ///< of the tile, counted in tiles
  std::int32_t column;  ///< of the tile, counted in tiles
  std::int32_t first;   ///< place of its pieces in the schedule's list
  std::int32_t pieces;  ///< how many; may be 0: then the sums are zeros
};

/// Every tile, over the whole depth.
struct dense_schedule {
  tile_order order;     ///< of the tiles
  std::int32_t pieces;  ///< of the depth

  [[nodiscard]] TESSERA_FN constexpr std::int32_t count() const { return static_cast<std::int32_t>(order.count()); }
  [[nodiscard]] TESSERA_FN constexpr gemm_work at(std::int32_t index) const {
    tile_order::place const tile = order.at(index);
    return {tile.row, tile.column, 0, pieces};
  }
  [[nodiscard]] TESSERA_FN constexpr std::int32_t piece(std::int32_t k) const { return k; }
};

/// Some tiles, each over some of the depth. The lists are where the product runs: on a GPU, in its memory.
struct listed_schedule {
  gemm_work const* works;    ///< count() of them
  std::int32_t work_count;   ///< of `works`
  std::int32_t const* list;  ///< numbers of pieces, which works refer to

  [[nodiscard]] TESSERA_FN constexpr std::int32_t count() const { return work_count; }
  [[nodiscard]] TESSERA_FN constexpr gemm_work at(std::int32_t index) const { return works[index]; }
  [[nodiscard]] TESSERA_FN constexpr std::int32_t piece(std::int32_t k) const { return list[k]; }
};

}  // namespace v0
}  // namespace tessera
