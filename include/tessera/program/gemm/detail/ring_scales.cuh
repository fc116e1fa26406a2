// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What gemm_ring does about scales of groups of columns: `ring_scales`, and `no_ring_scales` for operands that have
/// none, whose sums are a tile's result.
///
/// A stage is 128 columns deep, a group or a part of a longer one. The lanes copy the scales of a tile's rows and
/// columns with its codes. As soon as 16 rows of a warp are multiplied, their sums, times both scales, are added to
/// totals in fp32, and begin anew, while the next 16 rows are multiplied.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/program/gemm/detail/scale_blocks.hpp>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/source/scaled_source.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Codes in memory, and the source that has their scales, as gemm_ring has an operand of them.
template <ScaledSource S>
struct codes_with_scales {
  matrix_view<typename S::value_type const> matrix;  ///< the codes; rows are whole chunks of 16 bytes
  S source;                                          ///< the same codes, for their scales
};

/// No scales: sums are added up from stage to stage.
struct no_ring_scales {
  template <int Stages>
  struct stages_type {};
  struct cursor {};
  static constexpr bool takes = false;
};

/// A, B: ScaledSources with scale_address(). M: a product whose lanes hold sums as mma.sync has them.
template <class A, class B, class M>
struct ring_scales {
  using registers = typename M::registers;
  using sum_type = typename M::sum_type;
  static constexpr bool takes = true;                         ///< whether sums are taken after each stage
  static constexpr int lanes = M::group_type::size;           ///< those that copy
  static constexpr bool has_blocks = shares_scales<B>;        ///< whether a warp's columns have one scale
  static constexpr int columns_apart = has_blocks ? 64 : 1;   ///< columns from one scale to the next
  static constexpr int columns = M::columns / columns_apart;  ///< scales of a stage's columns
  static constexpr int copiers = lanes - M::rows;             ///< lanes that copy these; others copy those of rows
  static constexpr int copies = divide_up(columns, max(copiers, 1));  ///< of such a lane
  static_assert(copiers > 0, "tessera: a group has more lanes than a tile has rows");
  static_assert(A::group % 128 == 0 && B::group % 128 == 0 && registers::column_tiles == 8,
                "tessera: a stage is a part of one group, and a warp has 64 columns");

  /// The scales of a stage: of the rows of a, then of those of b, or of blocks of these.
  struct stage_type {
    alignas(16) float values[M::rows + columns];
  };
  template <int Stages>
  struct stages_type {
    stage_type of_stage[Stages];
  };
  /// The row of a, or the first one of b, whose scale a lane copies.
  struct cursor {
    std::int32_t row;
  };
  /// Scaled sums, in the place of sums.
  struct totals_type {
    float values[registers::row_tiles][registers::column_tiles][4];
  };

  std::uint32_t first;  ///< the address of the first stage
  typename M::group_type const& group;
  totals_type totals;  ///< of the lane's tile

  /// The lane's part of stages.
  template <int Stages>
  __device__ __forceinline__ static ring_scales of(stages_type<Stages> const& stages,
                                                   typename M::group_type const& group) {
    return {plain_shared_address(stages.of_stage), group, {}};
  }
  /// Begins a tile.
  __device__ __forceinline__ void clear(typename M::sum_tile& sums) {
    each_constant<registers::row_tiles * registers::column_tiles * 4>([&](auto i) {
      constexpr int row = i.value / 4 / registers::column_tiles;
      totals.values[row][i.value / 4 % registers::column_tiles][i.value % 4] = 0.0F;
      sums.values[row][i.value / 4 % registers::column_tiles][i.value % 4] = start();
    });
  }

  /// The lane's scales of the tile that begins at a row and a column.
  __device__ __forceinline__ static cursor aim(std::int32_t row, std::int32_t column, int lane) {
    return {lane < M::rows ? row + lane : column + (lane - M::rows) * (copies * columns_apart)};
  }
  /// Starts to copy the lane's scales of the groups of a column of the operands to a stage. Rows that a and b have not
  /// get the scale of the last one.
  __device__ __forceinline__ void begin(A const& a, B const& b, cursor const& at, std::int32_t column,
                                        int stage) const {
    std::uint32_t const to = first + static_cast<std::uint32_t>(stage * static_cast<int>(sizeof(stage_type)));
    if (group.lane < M::rows) {
      std::int32_t const row = min(at.row, static_cast<std::int32_t>(a.rows()) - 1);
      async_copy_4(to + 4 * static_cast<std::uint32_t>(group.lane), a.scale_address(row, column / A::group));
      return;
    }
    int const which = (group.lane - M::rows) * copies;
#pragma unroll
    for (int i = 0; i < copies; ++i) {
      if (which + i < columns) {
        std::int32_t const row = min(at.row + i * columns_apart, static_cast<std::int32_t>(b.rows()) - 1);
        async_copy_4(to + 4 * static_cast<std::uint32_t>(M::rows + which + i), b.scale_address(row, column / B::group));
      }
    }
  }

  /// Adds the sums of a stage and of the warp's 16 rows number Tile, times their scales, to the totals, and clears
  /// them. Returns a word that has been read after all others.
  template <int Tile>
  __device__ __forceinline__ std::uint32_t take(int stage, typename M::sum_tile& sums) {
    auto const at = registers::of(group);
    int const column = has_blocks ? at.column / columns_apart : at.column + at.lane % 4 * 2;
    std::uint32_t const of_stage = first + static_cast<std::uint32_t>(stage * static_cast<int>(sizeof(stage_type)));
    std::uint32_t const of_rows = of_stage + 4 * static_cast<std::uint32_t>(at.row + 16 * Tile + at.lane / 4);
    std::uint32_t const of_columns = of_stage + 4 * static_cast<std::uint32_t>(M::rows + column);
    float const rows[2] = {bit_cast<float>(load_shared_u32(of_rows)), bit_cast<float>(load_shared_u32(of_rows + 32))};
    uint2 pair{};  // of two columns
    if constexpr (has_blocks) {
      pair.x = load_shared_u32(of_columns);
      pair.y = pair.x;
    }
#pragma unroll
    for (int tile = 0; tile < registers::column_tiles; ++tile) {
      if constexpr (!has_blocks) {
        pair = load_shared_u32x2(of_columns + 32 * static_cast<std::uint32_t>(tile));
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float const scale = rows[i / 2] * bit_cast<float>(i % 2 == 0 ? pair.x : pair.y);
        totals.values[Tile][tile][i] += scale * value_of(sums.values[Tile][tile][i]);
        sums.values[Tile][tile][i] = start();
      }
    }
    return pair.y;
  }

 private:
  static constexpr bool is_integral = std::is_integral_v<sum_type>;
  /// 1.5 * 2^23, whose bits plus an integer of fewer than 23 bits are those of the sum of both as a float. So integers
  /// that are added up from these bits on take a subtraction in place of a conversion, of which sm_80 completes 4 in a
  /// cycle for each of its tensor cores: as long as these multiply.
  static constexpr float before_integers = 12582912.0F;

  /// What sums begin with.
  __device__ __forceinline__ static sum_type start() {
    return is_integral ? bit_cast<sum_type>(before_integers) : sum_type{};
  }
  /// The value of a sum: 128 products of codes are at most 2^21.
  __device__ __forceinline__ static float value_of(sum_type sum) {
    return is_integral ? bit_cast<float>(sum) - before_integers : static_cast<float>(sum);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
