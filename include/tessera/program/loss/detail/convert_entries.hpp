// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `convert_entries`: writes a band of rows of a classifier that is a TileSource to memory, so that programs that take
/// plain matrices multiply them. Which entries' rows a band has is up to `rows_in_order`, `rows_of_slots` or
/// `rows_of_positions`; `loss_bands` cuts the launches of a forward pass into bands.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/loss/block_lists.hpp>
#include <tessera/tile/row_chunks.hpp>
#include <tessera/tile/row_schedule.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// What a band has in a row that no entry has.
struct band_row {
  static constexpr std::int64_t zeros = -1;   ///< zeros are multiplied
  static constexpr std::int64_t unused = -2;  ///< nothing reads the row
};

/// Entries in their own order.
struct rows_in_order {
  std::int64_t first;  ///< the entry of the band's first row

  TESSERA_FN constexpr std::int64_t operator()(std::int64_t row) const { return first + row; }
};

/// Entries in the order that a filtered backward pass takes them in (entry_order.hpp): those of one part's slots, with
/// zeros up to whole panels of 256.
struct rows_of_slots {
  loss_part_range range;
  array_view<std::int32_t const> entry_of;  ///< the entry in each slot of the order

  TESSERA_FN constexpr std::int64_t operator()(std::int64_t row) const {
    std::int64_t const end = range.width();
    if (row >= divide_up(end, std::int64_t{256}) * 256) {
      return band_row::unused;
    }
    return row < end ? entry_of[range.first + row] : band_row::zeros;
  }
};

/// Entries of the tiles at some positions of a row_schedule, tile after tile.
struct rows_of_positions {
  row_schedule schedule;    ///< whose positions the band has
  std::int32_t columns;     ///< entries of a tile
  std::int64_t vocabulary;  ///< entries there are

  TESSERA_FN constexpr std::int64_t operator()(std::int64_t row) const {
    auto const tile = static_cast<std::int32_t>(row / columns);
    std::int64_t const column = schedule.column_at(schedule.first_position + tile);
    std::int64_t const entry = column * columns + row % columns;
    return entry < vocabulary ? entry : band_row::zeros;
  }
};

/// A row_schedule whose second operand is a band of memory with the tiles of its positions, as rows_of_positions writes
/// it.
struct band_schedule : row_schedule {
  /// The tile of the band that a work item multiplies, which has a tile.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t tile_of_b(std::int32_t index) const {
    return split_at(index).position - first_position;
  }
};

/// The bands in which the positions of a launch go through the memory for rows of a source.
struct loss_bands {
  row_schedule launch;
  std::int32_t length;  ///< positions of a band; the last one may have fewer

  /// Bands of at most `most` positions, of so many that workers are idle for the least part of their turns.
  [[nodiscard]] static loss_bands make(row_schedule const& launch, std::int32_t most) {
    std::int32_t best = most;
    std::int64_t steps_of_best = launch.of_positions(0, most).steps();
    for (std::int32_t length = most - 1; length >= most - most / 4 && length > 0; --length) {
      std::int64_t const steps = launch.of_positions(0, length).steps();
      if (steps * best < steps_of_best * length) {
        best = length;
        steps_of_best = steps;
      }
    }
    return {launch, best};
  }
  /// Calls use(schedule) for the schedule of each band.
  template <class Use>
  void each(Use const& use) const {
    std::int32_t const end = launch.first_position + launch.positions;
    for (std::int32_t first = launch.first_position; first < end; first += length) {
      use(launch.of_positions(first, min(first + length, end)));
    }
  }
};

/// How many elements a lane takes from a source at a time: 16 bytes of codes, or of the values that they become.
template <class Source>
constexpr int piece_columns() {
  constexpr int of_values = max(tile_chunk<typename Source::value_type>::size, 8);
  if constexpr (requires { requires Source::has_chunks; }) {
    return max(Source::code_chunk::size, of_values);
  } else {
    return of_values;
  }
}

/// Rows: which entry a row of the band has, or one of band_row. Groups are warps, since blocks that wait for all of
/// their warps load fewer bytes at a time, and several share a row, so that small bands have enough of them.
template <TileSource Source, class Rows>
struct convert_entries {
  using value_type = typename Source::value_type;
  static constexpr int lanes = 32;
  static constexpr int groups_per_block = 8;
  static constexpr int columns = lanes * piece_columns<Source>();  ///< channels that are converted at a time
  static constexpr std::int64_t span = 4 * columns;                ///< channels of a group
  struct scratch_type {
    staged_tile<value_type, 1, columns> tile;  ///< some of the row
  };

  Source source;                 ///< vocabulary x channels
  Rows rows;                     ///< which entries
  matrix_view<value_type> band;  ///< where they go; rows begin at multiples of 16 bytes

  /// Groups of a row.
  TESSERA_FN constexpr std::int64_t spans() const { return divide_up(band.extent(1), span); }
  TESSERA_FN constexpr std::int64_t groups() const { return band.extent(0) * spans(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const row = which / spans();
    std::int64_t const entry = rows(row);
    if (entry == band_row::unused) {
      return;
    }
    row_chunks<value_type> const to{band};
    std::int64_t const begin = (which - row * spans()) * span;
    std::int64_t const end = min(begin + span, band.extent(1));
    for (std::int64_t first = begin; first < end; first += columns) {
      group.sync();  // all lanes have read the tile before
      if (entry >= 0) {
        source.load(group, scratch.tile, entry, first);
      }
      group.sync();
      for (int lane : group) {
        for (int i = 0; i < columns; i += lanes * to.size) {
          int const column = i + lane * to.size;
          if (first + column < end) {
            to.store(row, first + column, entry >= 0 ? scratch.tile.chunk(0, column) : tile_chunk<value_type>{});
          }
        }
      }
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
