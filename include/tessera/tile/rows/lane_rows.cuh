// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The lane_rows of a warp (tile/rows/lane_rows.hpp): each lane has every 32nd column of all rows in registers.
#pragma once

#include <tessera/tile/cuda/detail/row_words.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/rows/lane_rows.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Where a lane of a warp has its values.
template <class Value, int Rows, int Columns>
struct warp_lane_rows {
  static_assert(Rows > 0 && Columns > 0 && Columns % lanes_in_a_warp == 0,
                "tessera: lane_rows of a warp have a multiple of 32 columns");
  using group_type = cuda_warp;
  static constexpr int holders = lanes_in_a_warp;
  static constexpr int holders_apart = 1;
  static constexpr int rows = Rows;
  static constexpr int columns = Columns;
  static constexpr int tiles = Rows;
  static constexpr int parts = 1;
  static constexpr int held = Columns / lanes_in_a_warp;
  static constexpr bool has_pairs = false;
  struct sum_tile {
    Value values[Rows][held];
  };

  __device__ __forceinline__ static int first_row(cuda_warp const&) { return 0; }
  __device__ __forceinline__ static constexpr int rows_to(int tile, int) { return tile; }
  /// The first column, below 32, which the compiler sees.
  __device__ __forceinline__ static int first_column(int lane) {
    return static_cast<int>(static_cast<unsigned>(lane) % unsigned{lanes_in_a_warp});
  }
  __device__ __forceinline__ static constexpr int further(int i) { return lanes_in_a_warp * i; }
  template <class Values>
  __device__ __forceinline__ static auto& sum(Values& values, int tile, int, int i) {
    return values.values[tile][i];
  }
};

}  // namespace detail

/// The rows in registers of a warp.
template <class Value, int Rows, int Columns>
struct lane_rows<Value, Rows, Columns, cuda_warp> : detail::row_words<detail::warp_lane_rows<Value, Rows, Columns>> {
  using group_type = cuda_warp;
  using sum_type = Value;
  using sum_tile = typename detail::warp_lane_rows<Value, Rows, Columns>::sum_tile;  ///< the registers of a lane
  static constexpr int rows = Rows;
  static constexpr int columns = Columns;

  /// Calls visit(row, value...) for each row, by one lane, which is not the same for neighbouring rows.
  template <class Visit, class... Values>
  __device__ __forceinline__ static void each_row_once(cuda_warp const& group, Visit const& visit, Values&... values) {
    lane_rows::each_row(
        group,
        [&](int row, auto&... of_row) {
          if (group.lane == row % lanes_in_a_warp) {
            visit(row, of_row...);
          }
        },
        values...);
  }
  /// The value of column `first` + `further` of a row, which all lanes get. All lanes reach this call. `first`: a
  /// multiple of 32 that the compiler sees; `further` is less than 32.
  __device__ __forceinline__ static Value at(cuda_warp const&, sum_tile const& values, int row, int first,
                                             int further) {
    return detail::move_words(values.values[row][first / lanes_in_a_warp], detail::from_lane{further});
  }
};

}  // namespace v0
}  // namespace tessera
