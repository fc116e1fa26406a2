// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `row_schedule`: the schedule of matrix products (tile/gemm_schedule.hpp) whose results are reduced along rows: each
/// worker stays with a row of tiles until its share of it is done, so that it can keep what it reduces.
///
///     row_schedule const schedule = row_schedule::make(32, 1000, 36, 66);     // tiles: 32 x 1000; 66 workers
///     schedule.splits;                                                        // 2 workers share each row
///     schedule.tail;                                                          // but its last 30 tiles: the 2 left over
///     schedule.states();                                                      // 4 shares of a row at most
///
/// With more rows than workers each worker first takes whole rows, as many as all workers have. Of the rows that are
/// left, `splits` workers share each: every `splits`-th tile. Workers that are left over then, fewer than those rows,
/// take the last tiles of all of them, one row after the other, so that all workers end at the same time; so one or two
/// of these take the tail of a row. All workers walk a row's places in step, so that columns of the second operand
/// come out of a cache. The first eight places are columns from all over the row, the others are in order.
///
/// A launch may do some steps only: from `first_step` to before `last_step`. A worker takes every `workers`-th work, as
/// in gemm_on_warpgroups.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/tile/gemm_schedule.hpp>

namespace tessera {
inline namespace v0 {

/// What a work is to its row of tiles.
struct row_share {
  std::int32_t row;
  std::int32_t split;     ///< which of the row's shares
  std::int32_t place;     ///< in the row's order
  std::int32_t before;    ///< tiles of the share before this one
  std::int32_t workless;  ///< so many shares that follow this one are nobody's; not 0 in the last tile alone
  bool is_there;          ///< else the work is empty
  bool is_last;           ///< of the share
};

struct row_schedule {
  static constexpr std::int32_t samples = 8;  ///< places with columns from all over the row

  std::int32_t rows;     ///< of tiles
  std::int32_t columns;  ///< likewise
  std::int32_t pieces;   ///< of the depth
  std::int32_t workers;
  std::int32_t turns;        ///< whole rows that each worker takes
  std::int32_t splits;       ///< workers that share a row after that
  std::int32_t tail;         ///< places of such a row that they leave to others
  std::int32_t tail_length;  ///< places of tails that each of these takes
  std::int32_t first_step;
  std::int32_t last_step;

  /// With at most `most_states` shares of a row.
  [[nodiscard]] static constexpr row_schedule make(std::int32_t rows, std::int32_t columns, std::int32_t pieces,
                                                   std::int32_t most_workers, std::int32_t most_states = 0x7fffffff) {
    const std::int32_t turns = rows / most_workers;
    const std::int32_t shared = rows % most_workers;
    row_schedule made{rows, columns, pieces, most_workers, turns, 1, 0, 0, 0, turns * columns};
    if (shared == 0) {
      return made;
    }
    made.splits = clamp(most_workers / shared, 1, max(min(columns, most_states), 1));
    const std::int32_t regular = shared * made.splits;
    made.take_tails(min(most_workers - regular, shared), most_states);
    const std::int32_t others = made.tail > 0 ? divide_up(shared * made.tail, made.tail_length) : 0;
    made.workers = turns > 0 ? most_workers : regular + others;
    made.last_step += max(divide_up(columns - made.tail, made.splits), made.tail_length);
    return made;
  }

  /// Shares of a row at most.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t states() const { return splits + (tail > 0 ? 2 : 0); }

  [[nodiscard]] TESSERA_FN constexpr std::int32_t count() const { return workers * (last_step - first_step); }
  [[nodiscard]] TESSERA_FN constexpr gemm_work at(std::int32_t index) const {
    const row_share share = share_at(index);
    return {share.row, column_at(share.place), 0, share.is_there ? pieces : 0};
  }
  [[nodiscard]] TESSERA_FN constexpr std::int32_t piece(std::int32_t k) const { return k; }

  [[nodiscard]] TESSERA_FN constexpr row_share share_at(std::int32_t index) const {
    const std::int32_t worker = index % workers;
    const std::int32_t step = first_step + index / workers;
    const std::int32_t own_rows = turns * workers;
    const std::int32_t shared_step = step - turns * columns;
    if (shared_step < 0) {
      const std::int32_t place = step % columns;
      const bool is_last = place == columns - 1;
      return {step / columns * workers + worker, 0, place, place, is_last ? states() - 1 : 0, true, is_last};
    }
    const std::int32_t regular = (rows - own_rows) * splits;
    if (worker < regular) {
      const std::int32_t split = worker % splits;
      const std::int32_t place = split + shared_step * splits;
      const std::int32_t end = columns - tail;
      return {own_rows + worker / splits, split, place, shared_step, 0, place < end, place + splits >= end};
    }
    return tail_share(worker - regular, shared_step);
  }

  /// Of places that are no columns, any.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t column_at(std::int32_t place) const {
    if (columns < 2 * samples) {
      return place;
    }
    if (place < samples) {
      return sample(place);
    }
    std::int32_t column = place - samples;
    for (std::int32_t i = 0; i < samples; ++i) {
      column += sample(i) <= column ? 1 : 0;
    }
    return column;
  }

 private:
  [[nodiscard]] TESSERA_FN constexpr std::int32_t sample(std::int32_t i) const {
    return static_cast<std::int32_t>((std::int64_t{2} * i + 1) * columns / (2 * samples));
  }

  /// A share is a row's part of a worker's places, which lie behind each other: tails are at least as long as rows'.
  [[nodiscard]] TESSERA_FN constexpr row_share tail_share(std::int32_t which, std::int32_t step) const {
    const std::int32_t own_rows = turns * workers;
    if (tail == 0) {
      return {0, 0, 0, 0, 0, false, false};
    }
    const std::int32_t from = which * tail_length;
    const std::int32_t tile = from + step;
    const std::int32_t row = tile / tail;
    const std::int32_t begin = row * tail;
    const bool is_second = begin < from;
    const bool is_end = tile - begin == tail - 1;
    return {own_rows + row,
            splits + (is_second ? 1 : 0),
            columns - tail + tile - begin,
            tile - max(begin, from),
            is_end && !is_second ? 1 : 0,
            step < tail_length && row < rows - own_rows,
            is_end || step == tail_length - 1};
  }

  /// So long that the others take as long as the `splits` workers of a row.
  constexpr void take_tails(std::int32_t others, std::int32_t most_states) {
    const std::int32_t shared = rows - turns * workers;
    if (others <= 0 || splits + 2 > most_states) {
      return;
    }
    const auto fair = static_cast<std::int32_t>(std::int64_t{columns} * others / (shared * splits + others));
    std::int32_t least = divide_up(columns, splits);
    for (std::int32_t length = max(fair, 1); length <= fair + 1 && columns - length >= splits; ++length) {
      const std::int32_t taken = divide_up(shared * length, others);
      const std::int32_t steps = max(divide_up(columns - length, splits), taken);
      if (steps < least) {
        least = steps;
        tail = length;
        tail_length = taken;
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
