// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Schedules of matrix products: which tiles there are, in which order they are computed, and over which k-tiles
/// (parts of the depth) each tile is summed.
///
///     dense_schedule const all{{32, 32, 8}, 128};         // all tiles of 32 x 32, in bands of 8, over all 128 k-tiles
///     listed_schedule const some{tiles, count, k_tiles};  // these tiles, each over its own list of k-tiles
///
/// A schedule is trivially copyable. It has count(); at(i), work item number i, for all i below count(); and k_tile(k),
/// the number of the k-tile that is k-th in the schedule's list. Work items are taken in order by whichever worker is
/// free (a thread block takes every n-th), so that a list of items of different lengths begins with the longest. A
/// user's own schedule may give all tiles of a row to one thread block, or compute lists while the program runs. Where
/// tiles of the second operand lie in another order than columns do, a schedule has tile_of_b(i): the tile of that
/// operand for work item number i, which gemm_pingpong, gemm_cooperative and gemm_ring ask for.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/tile/tile_order.hpp>

namespace tessera {
inline namespace v0 {

/// One work item: a tile and its k-tiles.
struct gemm_work_item {
  std::int32_t row;      ///< of the tile, counted in tiles
  std::int32_t column;   ///< of the tile, counted in tiles
  std::int32_t first;    ///< index of its first k-tile in the schedule's list
  std::int32_t k_tiles;  ///< number of its k-tiles; if 0, the sums are zeros
};

/// The schedule of every tile, over the whole depth.
struct dense_schedule {
  tile_order order;      ///< the order of the tiles
  std::int32_t k_tiles;  ///< k-tiles of the depth

  [[nodiscard]] TESSERA_FN constexpr std::int32_t count() const { return static_cast<std::int32_t>(order.count()); }
  [[nodiscard]] TESSERA_FN constexpr gemm_work_item at(std::int32_t index) const {
    tile_coordinate const tile = order.at(index);
    return {tile.row, tile.column, 0, k_tiles};
  }
  [[nodiscard]] TESSERA_FN constexpr std::int32_t k_tile(std::int32_t k) const { return k; }
};

/// The schedule of some tiles, each over some of the depth. Its lists are in memory where the product runs: on a GPU,
/// the device's.
struct listed_schedule {
  gemm_work_item const* items;  ///< count() work items
  std::int32_t item_count;      ///< how many work items there are
  std::int32_t const* list;     ///< numbers of k-tiles, to which work items refer

  [[nodiscard]] TESSERA_FN constexpr std::int32_t count() const { return item_count; }
  [[nodiscard]] TESSERA_FN constexpr gemm_work_item at(std::int32_t index) const { return items[index]; }
  [[nodiscard]] TESSERA_FN constexpr std::int32_t k_tile(std::int32_t k) const { return list[k]; }
};

}  // namespace v0
}  // namespace tessera
