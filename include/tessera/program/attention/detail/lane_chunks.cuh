// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `lane_chunks`: how a lane copies its chunks of one tile of a matrix's rows after the other to staged_tiles, from the
/// first to the last. What the tiles have in common is computed once: a tile that is there as a whole costs its copies
/// and an addition for each.
#pragma once

#include <cstdint>

#include <tessera/core/with_constant.hpp>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Rows, Columns: of a tile. Lanes: those that copy it. Rows of the matrix have whole chunks of 16 bytes, and it has
/// fewer than 2^30 of them.
template <class T, int Rows, int Columns, int Lanes>
struct lane_chunks {
  static constexpr int in_chunk = 16 / static_cast<int>(sizeof(T));  ///< elements of a chunk
  static constexpr int in_row = Columns / in_chunk;                  ///< chunks of a row
  static constexpr int apart = Lanes / in_row;                       ///< rows from a lane's chunk to its next one
  static constexpr int count = Rows / apart;                         ///< chunks of a lane
  static_assert(Lanes % in_row == 0 && Rows % apart == 0, "tessera: lanes have as many whole chunks of a tile");

  std::uintptr_t first;  ///< the address of the lane's first chunk, as a number: it may not be there
  int left;              ///< rows of the matrix from the lane's first one on; negative in columns that it does not have

  /// The chunks of the tile that begins with a row, which need not be there.
  __device__ __forceinline__ static lane_chunks of(matrix_view<T const> matrix, std::int64_t row, int lane) {
    constexpr int nothing = -(1 << 30);
    int const own_row = lane / in_row;
    int const column = lane % in_row * in_chunk;
    return {reinterpret_cast<std::uintptr_t>(matrix.data) +
                static_cast<std::uintptr_t>((row + own_row) * matrix.stride(0) + column) * sizeof(T),
            column < matrix.extent(1) ? static_cast<int>(matrix.extent(0) - row) - own_row : nothing};
  }
  /// Starts to copy the tile; chunks that are not there become zeros. `stride`: elements from row to row of the matrix.
  /// `is_whole`: all rows and columns are there.
  template <class Tile>
  __device__ __forceinline__ void begin(Tile& to, std::int64_t stride, bool is_whole, int lane) const {
    static_assert(Tile::rows == Rows && Tile::columns == Columns);
    std::uint32_t const place = shared_address(&to.chunk(lane / in_row, lane % in_row * in_chunk));
    std::uintptr_t const step = static_cast<std::uintptr_t>(stride) * sizeof(T);
    constexpr auto bytes_apart = static_cast<std::uint32_t>(apart * Tile::stride * static_cast<int>(sizeof(T)));
    if (is_whole) {
      each_constant<count>([&](auto i) {
        async_copy_16_behind<0>(place + i.value * bytes_apart,
                                reinterpret_cast<void const*>(first + i.value * apart * step));
      });
    } else {
      each_constant<count>([&](auto i) {
        async_copy_16_or_zero(place + i.value * bytes_apart,
                              reinterpret_cast<void const*>(first + i.value * apart * step), i.value * apart < left);
      });
    }
  }
  /// Goes on to the next tile.
  __device__ __forceinline__ void move_on(std::int64_t stride) {
    first += Rows * static_cast<std::uintptr_t>(stride) * sizeof(T);
    left -= Rows;
  }
  /// The chunks of a tile that begins so many rows further.
  [[nodiscard]] __device__ __forceinline__ lane_chunks further(int rows, std::int64_t stride) const {
    return {first + static_cast<std::uintptr_t>(rows * stride) * sizeof(T), left - rows};
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
