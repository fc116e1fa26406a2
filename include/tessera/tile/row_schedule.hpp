// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `row_schedule`: the schedule of matrix products (tile/gemm_schedule.hpp) whose results are reduced along rows. Each
/// worker stays with a row of tiles until its split of the row is done, so that it can keep the state that it reduces.
///
///     row_schedule const schedule = row_schedule::make(32, 1000, 36, 66);     // tiles: 32 x 1000; 66 workers
///     schedule.kinds[1];                    // one band of 32 rows, each of which 2 workers share
///     schedule.kinds[1].tail;               // but its last 30 tiles: the 2 other workers take those of all rows
///     schedule.states();                    // splits of a row at most: 4
///
/// All workers walk through a band of rows together, in step, so that columns of the second operand are read from a
/// cache. If there are more rows than workers, they then walk through the next band. `splits` workers share each row,
/// and each takes every `splits`-th position of it. The remaining workers, fewer than a band has rows, take the last
/// positions (the tail) of all rows, one row after the other, so that all workers end at the same time; one or two of
/// them take the tail of a row. These workers are not in step with the others: the schedule has more bands than needed
/// if that leaves them less than half as many tiles. The first eight positions of a row are columns from all parts of
/// it; the others are in order. A worker takes every `workers`-th work item, as in gemm_cooperative.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/tile/gemm_schedule.hpp>

namespace tessera {
inline namespace v0 {

/// The part (`row_split`) of a row of tiles that a work item belongs to, and the item's position in it.
struct row_split {
  std::int32_t row;       ///< index of the row of tiles
  std::int32_t split;     ///< index of the split within the row
  std::int32_t position;  ///< position in the row's order
  std::int32_t before;    ///< how many tiles of the split come before this one
  bool is_there;          ///< whether there is a tile; else the work item is empty
  bool is_last;           ///< whether the tile is the last of its split
};

/// Bands with equally many rows each.
struct row_bands {
  std::int32_t count;        ///< number of bands
  std::int32_t rows;         ///< rows of each band
  std::int32_t splits;       ///< workers that share a row, one split each
  std::int32_t tail;         ///< positions of a row that they leave to other workers
  std::int32_t tail_length;  ///< positions of tails that each of these other workers takes
  std::int32_t steps;        ///< work items of each worker in a band

  /// The most splits of a row, including those of its tail.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t states() const { return splits + (tail > 0 ? 2 : 0); }
};

struct row_schedule {
  static constexpr std::int32_t samples = 8;  ///< first positions of a row, with columns from all over it

  std::int32_t rows;            ///< of the matrix, in tiles
  std::int32_t columns;         ///< of the matrix, in tiles
  std::int32_t k_tiles;         ///< k-tiles of the depth
  std::int32_t workers;         ///< workers that take items at the same time
  std::int32_t most_states;     ///< the most splits that a row may have
  std::int32_t first_position;  ///< the first position of each row that is to be done
  std::int32_t positions;       ///< positions of each row that are to be done
  row_bands kinds[2];           ///< the bands; those of the second kind have one row less
  std::int32_t items;           ///< work items of all workers

  /// The schedule of all tiles of a matrix of rows x columns tiles, for at most so many workers and splits of a row.
  [[nodiscard]] static constexpr row_schedule make(std::int32_t rows, std::int32_t columns, std::int32_t k_tiles,
                                                   std::int32_t most_workers, std::int32_t most_states = 0x7fffffff) {
    row_schedule const made{rows, columns, k_tiles, most_workers, most_states, 0, 0, {}, 0};
    return made.of_positions(0, columns);
  }

  /// This schedule restricted to the positions from `first` to `end` - 1 of all rows.
  [[nodiscard]] constexpr row_schedule of_positions(std::int32_t first, std::int32_t end) const {
    constexpr std::int32_t more_bands = 3;
    std::int32_t const fewest = max(divide_up(rows, workers), 1);
    row_schedule best = in_bands(fewest, first, end);
    for (std::int32_t count = fewest + 1; count <= min(fewest + more_bands, rows); ++count) {
      row_schedule const made = in_bands(count, first, end);
      bool const takes_as_long = std::int64_t{made.steps()} * 100 <= std::int64_t{best.steps()} * 101;
      best = takes_as_long && made.tail_tiles() < best.tail_tiles() / 2 ? made : best;
    }
    return best;
  }

  /// The most splits of a row.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t states() const {
    return max(kinds[0].count > 0 ? kinds[0].states() : 1, kinds[1].count > 0 ? kinds[1].states() : 1);
  }

  /// Work items of each worker.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t steps() const {
    return kinds[0].count * kinds[0].steps + kinds[1].count * kinds[1].steps;
  }
  [[nodiscard]] TESSERA_FN constexpr std::int32_t count() const { return items; }
  [[nodiscard]] TESSERA_FN constexpr gemm_work_item at(std::int32_t index) const {
    row_split const part = split_at(index);
    return {part.row, column_at(part.position), 0, part.is_there ? k_tiles : 0};
  }
  [[nodiscard]] TESSERA_FN constexpr std::int32_t k_tile(std::int32_t k) const { return k; }

  /// The split of a row that a work item belongs to.
  [[nodiscard]] TESSERA_FN constexpr row_split split_at(std::int32_t index) const {
    std::int32_t const worker = index % workers;
    std::int32_t const step = index / workers;
    std::int32_t const first_steps = kinds[0].count * kinds[0].steps;
    return step < first_steps ? split_in(kinds[0], 0, worker, step)
                              : split_in(kinds[1], kinds[0].count * kinds[0].rows, worker, step - first_steps);
  }

  /// The column at a position; positions outside of the row have any column.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t column_at(std::int32_t position) const {
    if (columns < 2 * samples) {
      return position;
    }
    if (position < samples) {
      return sample(position);
    }
    std::int32_t column = position - samples;
    for (std::int32_t i = 0; i < samples; ++i) {
      column += sample(i) <= column ? 1 : 0;
    }
    return column;
  }

 private:
  [[nodiscard]] constexpr row_schedule in_bands(std::int32_t count, std::int32_t first, std::int32_t end) const {
    std::int32_t const higher = rows % count;
    row_schedule made = *this;
    made.first_position = first;
    made.positions = end - first;
    made.kinds[0] = {higher, rows / count + 1, 1, 0, 0, 0};
    made.kinds[1] = {count - higher, rows / count, 1, 0, 0, 0};
    for (row_bands& bands : made.kinds) {
      if (bands.count > 0 && bands.rows > 0) {
        bands = with_tails(bands, made.positions);
      }
    }
    made.items = workers * made.steps();
    return made;
  }
  [[nodiscard]] constexpr std::int64_t tail_tiles() const {
    std::int64_t tiles = 0;
    for (row_bands const& bands : kinds) {
      tiles += std::int64_t{bands.count} * bands.rows * bands.tail;
    }
    return tiles;
  }

  [[nodiscard]] TESSERA_FN constexpr std::int32_t sample(std::int32_t i) const {
    return static_cast<std::int32_t>((std::int64_t{2} * i + 1) * columns / (2 * samples));
  }

  [[nodiscard]] TESSERA_FN constexpr row_split split_in(row_bands const& bands, std::int32_t first_row,
                                                        std::int32_t worker, std::int32_t step) const {
    std::int32_t const band = step / bands.steps;
    std::int32_t const own_step = step - band * bands.steps;
    std::int32_t const band_row = first_row + band * bands.rows;
    std::int32_t const regular = bands.rows * bands.splits;
    if (worker >= regular) {
      return tail_split(bands, band_row, worker - regular, own_step);
    }
    std::int32_t const row = worker / bands.splits;
    std::int32_t const split = worker - row * bands.splits;
    std::int32_t const position = split + own_step * bands.splits;
    std::int32_t const end = positions - bands.tail;
    return {band_row + row, split, first_position + position, own_step, position < end, position + bands.splits >= end};
  }

  /// A worker's positions lie one after the other, and are at least as many as a row's tail has. The positions that it
  /// takes of one row are a split.
  [[nodiscard]] TESSERA_FN constexpr row_split tail_split(row_bands const& bands, std::int32_t band_row,
                                                          std::int32_t which, std::int32_t step) const {
    if (bands.tail == 0) {
      return {0, 0, 0, 0, false, false};
    }
    std::int32_t const from = which * bands.tail_length;
    std::int32_t const tile = from + step;
    std::int32_t const row = tile / bands.tail;
    std::int32_t const begin = row * bands.tail;
    return {band_row + row,
            bands.splits + (begin < from ? 1 : 0),
            first_position + positions - bands.tail + tile - begin,
            tile - max(begin, from),
            step < bands.tail_length && row < bands.rows,
            tile - begin == bands.tail - 1 || step == bands.tail_length - 1};
  }

  /// Chooses tails so long that the workers left over take as long as the `splits` workers of a row.
  [[nodiscard]] constexpr row_bands with_tails(row_bands bands, std::int32_t all_positions) const {
    bands.splits = clamp(workers / bands.rows, 1, max(min(all_positions, most_states), 1));
    bands.steps = divide_up(all_positions, bands.splits);
    bands.tail = 0;
    bands.tail_length = 0;
    std::int32_t const regular = bands.rows * bands.splits;
    std::int32_t const others = min(workers - regular, bands.rows);
    if (others <= 0 || bands.splits > most_states - 2) {
      return bands;
    }
    auto const fair = static_cast<std::int32_t>(std::int64_t{all_positions} * others / (regular + others));
    for (std::int32_t length = max(fair, 1); length <= fair + 1 && all_positions - length >= bands.splits; ++length) {
      std::int32_t const taken = divide_up(bands.rows * length, others);
      std::int32_t const steps = max(divide_up(all_positions - length, bands.splits), taken);
      if (steps < bands.steps) {
        bands.steps = steps;
        bands.tail = length;
        bands.tail_length = taken;
      }
    }
    return bands;
  }
};

}  // namespace v0
}  // namespace tessera
