// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `stage_rows`: how a lane copies its chunks of an operand along the depth to stages of a ring
/// (tile/cuda/sm_80/swizzled_ring.cuh), from the same rows of a matrix again and again. What these rows have in common
/// is computed once, and what a stage costs beside its copies is an address. `stage_columns`: the same of an operand
/// across the depth, from the same columns.
///
///     using rows = stage_rows<bfloat16, 128, 256>;                        // 128 rows, by 256 lanes
///     rows const own = rows::of(matrix, first_row, lane);
///     own.begin(matrix, column, shared_address(stage) + rows::offset(lane), lane);
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Rows: of a stage, each of 128 bytes. Lanes: those that copy it.
template <class T, int Rows, int Lanes>
struct stage_rows {
  static constexpr int chunks = 8;                                   ///< of a row, 16 bytes each
  static constexpr int apart = Lanes / chunks;                       ///< rows from a lane's chunk to its next one
  static constexpr int count = Rows / apart;                         ///< chunks of a lane
  static constexpr int in_chunk = 16 / static_cast<int>(sizeof(T));  ///< values of a chunk
  static_assert(Lanes % (8 * chunks) == 0 && Rows % apart == 0,
                "tessera: lanes copy whole rows of a stage, and a lane rows that are multiples of 8 apart");

  std::uintptr_t first;  ///< the address of the lane's first chunk in the matrix's first columns, as a number
  int left;              ///< rows of the matrix from the lane's first row on, at most those of the stage; 0 for none

  /// A lane of no rows, whose stages are filled with zeros.
  __device__ __forceinline__ static stage_rows none() { return {0, 0}; }
  /// A lane of the rows from `row` on.
  __device__ __forceinline__ static stage_rows of(matrix_view<T const> matrix, std::int64_t row, int lane) {
    auto const there = static_cast<int>(min(max(matrix.extent(0) - row, std::int64_t{0}), std::int64_t{Rows}));
    return {reinterpret_cast<std::uintptr_t>(matrix.data) +
                static_cast<std::uintptr_t>((row + lane / chunks) * matrix.stride(0) + lane % chunks * in_chunk) *
                    sizeof(T),
            there - lane / chunks};
  }
  /// The offset in bytes of a lane's first chunk in a stage.
  __device__ __forceinline__ static std::uint32_t offset(int lane) {
    auto const of_lane = static_cast<std::uint32_t>(lane);
    return of_lane / chunks * 128 + (of_lane % chunks ^ of_lane / chunks % 8) * 16;
  }

  /// Starts to copy 128 bytes of each row, from `column` of the matrix on, which has fewer than 2^31 columns. `to`: the
  /// stage's shared address and the lane's offset.
  __device__ __forceinline__ void begin(matrix_view<T const> matrix, std::int32_t column, std::uint32_t to,
                                        int lane) const {
    int const there = column + lane % chunks * in_chunk < static_cast<std::int32_t>(matrix.extent(1)) ? left : 0;
    std::uintptr_t const from = first + static_cast<std::uintptr_t>(std::int64_t{column} * static_cast<int>(sizeof(T)));
    std::uintptr_t const step = static_cast<std::uintptr_t>(matrix.stride(0)) * (apart * sizeof(T));
    each_constant<count>([&](auto i) {
      async_copy_16_or_zero(to + i.value * apart * 128, reinterpret_cast<void const*>(from + i.value * step),
                            i.value * apart < there);
    });
  }
};

/// Columns: of a stage, in boxes of 64 (stage_across), each with 64 rows of 128 bytes. Lanes: those that copy it.
template <class T, int Columns, int Lanes>
struct stage_columns {
  static constexpr int box = 64;                ///< rows and columns of a box
  static constexpr int chunks = 8;              ///< of a row, 16 bytes each
  static constexpr int apart = Lanes / chunks;  ///< rows from a lane's chunk to its next one
  static constexpr int count = box / apart;     ///< chunks of a lane in a box
  static constexpr int in_chunk = 8;            ///< values of a chunk
  static_assert(sizeof(T) == 2 && Lanes % (8 * chunks) == 0 && box % apart == 0 && Columns % box == 0,
                "tessera: lanes copy whole rows of boxes, and a lane rows that are multiples of 8 apart");

  std::uintptr_t first;  ///< the address of the lane's first chunk in the matrix's first rows, as a number
  int left;              ///< columns of the matrix from the lane's first one on, at most those of the stage

  /// A lane of no columns, whose stages are filled with zeros.
  __device__ __forceinline__ static stage_columns none() { return {0, 0}; }
  /// A lane of the columns from `column` on.
  __device__ __forceinline__ static stage_columns of(matrix_view<T const> matrix, std::int64_t column, int lane) {
    auto const there = static_cast<int>(min(max(matrix.extent(1) - column, std::int64_t{0}), std::int64_t{Columns}));
    int const own = lane % chunks * in_chunk;
    return {reinterpret_cast<std::uintptr_t>(matrix.data) +
                static_cast<std::uintptr_t>(lane / chunks * matrix.stride(0) + column + own) * sizeof(T),
            there - own};
  }
  /// The offset in bytes of a lane's first chunk in a stage.
  __device__ __forceinline__ static std::uint32_t offset(int lane) { return stage_rows<T, box, Lanes>::offset(lane); }

  /// Starts to copy 64 rows from `row` of the matrix on, which has fewer than 2^31 rows. `to`: the stage's shared
  /// address and the lane's offset.
  __device__ __forceinline__ void begin(matrix_view<T const> matrix, std::int32_t row, std::uint32_t to,
                                        int lane) const {
    int const rows_left = static_cast<std::int32_t>(matrix.extent(0)) - row - lane / chunks;
    std::uintptr_t const from = first + static_cast<std::uintptr_t>(row * matrix.stride(0)) * sizeof(T);
    std::uintptr_t const step = static_cast<std::uintptr_t>(matrix.stride(0)) * (apart * sizeof(T));
    each_constant<Columns / box * count>([&](auto i) {
      constexpr int of_box = i.value / count;
      constexpr int below = i.value % count;
      async_copy_16_or_zero(to + (of_box * box + below * apart) * 128,
                            reinterpret_cast<void const*>(from + below * step + of_box * 128),
                            of_box * box < left && below * apart < rows_left);
    });
  }
};

}  // namespace v0
}  // namespace tessera
