// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `swizzled_operands<M>`: loads the operands of a gemm_tile in registers from swizzled tiles in shared memory, whose
/// rows have 128 bytes and no gap between them (tile/swizzled_tile.hpp).
///
///     using product = gemm_tile<bfloat16, shape<128, 128, 16>, cuda_block<128>>;
///     using operands = swizzled_operands<product>;
///     constexpr auto along = swizzled_order::along_depth;
///     std::uint32_t const from = shared_address(stage) + operands::offset_of_a<along>(group);
///     std::uint32_t rows[4];
///     operands::load_rows<along>(rows, from, step, tile);              // 16 rows and 32 bytes of the depth
///
/// An operand lies along the depth, a row of the tile for each of its rows, or across it, a row for each 64 numbers of
/// the depth in boxes of 64 columns. A warp has 64 rows of a and 64 columns of b then: a box each.
///
/// Chunk c of 16 bytes of row r lies at 16 (c ^ (r % 8)) of the row. Rows are added 8 at a time, and tiles begin at
/// multiples of 1024 bytes, so that other chunks of a lane's row differ in bits that one exclusive or sets.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/tile/cuda/gemm_tile.cuh>
#include <tessera/tile/cuda/load_matrix.cuh>
#include <tessera/tile/cuda/mma.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/gemm_operand.hpp>

namespace tessera {
inline namespace v0 {

/// How an operand lies in shared memory: along the depth, rows of the operand with 128 bytes of it, or across it, boxes
/// of 64 columns of the operand with a row for each number of the depth.
using swizzled_order = operand_order;

/// M: a gemm_tile in registers of which a product takes 32 bytes of the depth.
template <class M>
struct swizzled_operands {
  /// How M lies in registers.
  using registers = typename M::registers;
  using group_type = typename M::group_type;
  static constexpr std::uint32_t row_bytes = 128;             ///< bytes of a row of a tile
  static constexpr std::uint32_t box_bytes = 64 * row_bytes;  ///< bytes of a box of operands across the depth
  static_assert(M::depth * sizeof(typename M::operand_type) == 32,
                "tessera: swizzled operands are loaded for 32 bytes of the depth at a time");

  /// The offset in bytes of a lane's part of a tile of a.
  template <swizzled_order Order>
  __device__ __forceinline__ static std::uint32_t offset_of_a(group_type const& group) {
    auto const at = registers::of(group);
    auto const lane = static_cast<std::uint32_t>(at.lane);
    auto const row = static_cast<std::uint32_t>(at.row);
    if constexpr (Order == swizzled_order::along_depth) {
      return (row + lane % 16) * row_bytes + (lane / 16 ^ lane % 8) * 16;
    } else {
      static_assert(registers::row_tiles == 4, "tessera: of an operand across the depth a warp has a box");
      return row / 64 * box_bytes + (lane / 16 * 8 + lane % 8) * row_bytes + (lane / 8 % 2 ^ lane % 8) * 16;
    }
  }
  /// The offset in bytes of a lane's part of a tile of b.
  template <swizzled_order Order>
  __device__ __forceinline__ static std::uint32_t offset_of_b(group_type const& group) {
    auto const at = registers::of(group);
    auto const lane = static_cast<std::uint32_t>(at.lane);
    auto const column = static_cast<std::uint32_t>(at.column);
    if constexpr (Order == swizzled_order::along_depth) {
      return (column + lane / 16 * 8 + lane % 8) * row_bytes + (lane / 8 % 2 ^ lane % 8) * 16;
    } else {
      static_assert(registers::column_tiles == 8, "tessera: of an operand across the depth a warp has a box");
      return column / 64 * box_bytes + lane % 16 * row_bytes + (lane / 16 ^ lane % 8) * 16;
    }
  }

  /// Loads 16 rows of a, a warp's tile number `tile` of them, for product number `step` of a stage. `from`: the stage's
  /// shared address and the lane's offset.
  template <swizzled_order Order>
  __device__ __forceinline__ static void load_rows(std::uint32_t (&words)[4], std::uint32_t from, std::uint32_t step,
                                                   std::uint32_t tile) {
    if constexpr (Order == swizzled_order::along_depth) {
      load_matrix_x4(words, (from ^ (32 * step)) + 16 * row_bytes * tile);
    } else {
      load_matrix_x4_transposed(words, (from ^ (32 * tile)) + 16 * row_bytes * step);
    }
  }
  /// Loads 16 columns of b, a warp's pair number `pair` of tiles of eight, for product number `step` of a stage.
  template <swizzled_order Order>
  __device__ __forceinline__ static void load_columns(typename M::b_tile& b, std::uint32_t from, std::uint32_t step,
                                                      std::uint32_t pair) {
    std::uint32_t words[4];
    if constexpr (Order == swizzled_order::along_depth) {
      load_matrix_x4(words, (from ^ (32 * step)) + 16 * row_bytes * pair);
    } else {
      load_matrix_x4_transposed(words, (from ^ (32 * pair)) + 16 * row_bytes * step);
    }
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      b.words[0][2 * pair + i / 2][i % 2] = words[i];
    }
  }
};

/// Operands of a gemm_tile as a warp multiplies them, 16 rows by eight columns at a time. M: as above.
template <class M>
struct multiplied_operands {
  /// How M lies in registers.
  using registers = typename M::registers;
  using operand_name = typename registers::operand_name;  ///< the type as mma.sync names it
  /// How many fragments a fragment of operands is multiplied as.
  static constexpr int halves = detail::is_multiplied_as_half<operand_name>() ? 2 : 1;
  /// 16 rows of a as they are multiplied.
  struct row_operand {
    std::uint32_t words[halves][4];  ///< of each 16 bytes of the depth
  };
  /// All columns of b as they are multiplied.
  struct column_operand {
    std::uint32_t words[halves][registers::column_tiles][2];  ///< of each 16 bytes of the depth and 8 columns
  };
  /// Makes 16 rows from a fragment of a.
  __device__ __forceinline__ static row_operand rows_of(std::uint32_t const (&a)[4]) {
    row_operand rows;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (halves == 2) {
        uint2 const pairs = detail::unpack_four<operand_name>(a[i]);
        rows.words[i / 2][i % 2] = pairs.x;
        rows.words[i / 2][i % 2 + 2] = pairs.y;
      } else {
        rows.words[0][i] = a[i];
      }
    }
    return rows;
  }
  /// Makes columns of a step of b.
  __device__ __forceinline__ static column_operand columns_of(typename M::b_tile const& b, int step) {
    column_operand columns;
#pragma unroll
    for (int i = 0; i < 2 * registers::column_tiles; ++i) {
      std::uint32_t const word = b.words[step][i / 2][i % 2];
      if constexpr (halves == 2) {
        uint2 const pairs = detail::unpack_four<operand_name>(word);
        columns.words[i % 2][i / 2][0] = pairs.x;
        columns.words[i % 2][i / 2][1] = pairs.y;
      } else {
        columns.words[0][i / 2][i % 2] = word;
      }
    }
    return columns;
  }
  /// Multiplies 16 rows by eight columns, tile number `column`.
  __device__ __forceinline__ static void multiply_rows(row_operand const& rows, column_operand const& columns,
                                                       int column, typename M::sum_type (&sums)[4]) {
#pragma unroll
    for (int half = 0; half < halves; ++half) {
      if constexpr (halves == 2) {
        warp_mma<float16>::multiply(sums, rows.words[half], columns.words[half][column]);
      } else {
        detail::multiply_fragments<operand_name>(sums, rows.words[half], columns.words[half][column]);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
