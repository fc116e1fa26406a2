// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The row_tile of eight rows for each warp: tensor cores multiply it the other way round, c^T += b^T a^T, so that its
/// rows are the eight columns of their instruction, and its columns the sixteen rows. Half of a tile of sixteen rows
/// would be empty.
///
/// A row is held by the eight lanes with the same lane % 4: register 2 h + i of a lane is row 2 (lane % 4) + i and
/// column lane / 4 + 8 h of sixteen. What is left of sixteen columns is, rounded to 16 bits and transposed by an
/// instruction for each eight, the operand of the next product.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/precision.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/gemm_tile.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/load_matrix.cuh>
#include <tessera/tile/cuda/mma.cuh>
#include <tessera/tile/cuda/pairs.cuh>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The fragments. The members are those of gemm_fragments.
template <class T, class Shape, class G>
struct turned_fragments {
  /// The fragments of the transposed product, which loads operands from rows of the same layout.
  using upright = gemm_fragments<T, shape<16, 8, Shape::k>, cuda_warp>;
  using operand = gemm_operand<T>;
  using operand_type = typename operand::value_type;
  using sum_type = typename operand::sum_type;
  using mma = warp_mma<T>;
  static constexpr int warps = G::size / lanes_in_a_warp;
  static constexpr int column_tiles = Shape::n / 16;
  static constexpr int steps = Shape::k / mma::depth;
  static constexpr int in_word = upright::in_word;
  static constexpr int in_chunk = upright::in_chunk;
  static_assert(is_16_bit_float<T> || std::is_same_v<T, std::int8_t>,
                "tessera: a row_tile of eight rows for each warp multiplies bfloat16, float16 or std::int8_t");
  static_assert(Shape::m == 8 * warps && column_tiles * 16 == Shape::n && steps * mma::depth == Shape::k &&
                    column_tiles > 0 && steps > 0,
                "tessera: a row_tile of eight rows for each warp has columns in sixteens, and a depth in 32 bytes");

  struct a_tile {
    std::uint32_t words[steps][1][2];  ///< the right operand of tensor cores
  };
  struct b_tile {
    std::uint32_t words[steps][column_tiles][4];  ///< their left operand
  };
  struct sum_tile {
    sum_type values[1][column_tiles][4];
  };

  /// The first row of a warp.
  __device__ __forceinline__ static int first_row(G const& group) { return group.lane / lanes_in_a_warp * 8; }

  template <bool IsStaged = false>
  __device__ __forceinline__ static void load_a(G const& group, a_tile& a, operand_type const* from,
                                                std::int64_t stride) {
    int const lane = group.lane % lanes_in_a_warp;
    operand_type const* const first = from + first_row(group) * stride;
    bool const by_matrix = IsStaged || upright::suits_load_matrix(from, stride);
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      operand_type const* const corner = first + step * mma::depth;
      if (by_matrix) {
        load_matrix_x2(a.words[step][0], upright::shared(corner + lane % 8 * stride + lane / 8 % 2 * in_chunk));
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          a.words[step][0][i] = upright::word(corner + lane / 4 * stride + lane % 4 * in_word + i * in_chunk);
        }
      }
    }
  }

  template <bool IsStaged = false>
  __device__ __forceinline__ static void load_b_transposed(G const& group, b_tile& b, operand_type const* from,
                                                           std::int64_t stride) {
    int const lane = group.lane % lanes_in_a_warp;
    bool const by_matrix = IsStaged || upright::suits_load_matrix(from, stride);
    each_operand(b, [&](std::uint32_t(&to)[4], int step, int tile) {
      operand_type const* const corner = from + 16 * tile * stride + step * mma::depth;
      if (by_matrix) {
        load_matrix_x4(to, upright::shared(corner + lane % 16 * stride + lane / 16 * in_chunk));
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          to[i] = upright::word(corner + (lane / 4 + i % 2 * 8) * stride + lane % 4 * in_word + i / 2 * in_chunk);
        }
      }
    });
  }

  template <bool IsStaged = false>
  __device__ __forceinline__ static void load_b(G const& group, b_tile& b, operand_type const* from,
                                                std::int64_t stride) {
    int const lane = group.lane % lanes_in_a_warp;
    bool const by_matrix = sizeof(operand_type) == 2 && (IsStaged || upright::suits_load_matrix(from, stride));
    each_operand(b, [&](std::uint32_t(&to)[4], int step, int tile) {
      operand_type const* const corner = from + step * mma::depth * stride + 16 * tile;
      if (by_matrix) {
        int const row = lane % 8 + lane / 16 * 8;
        load_matrix_x4_transposed(to, upright::shared(corner + row * stride + lane / 8 % 2 * 8));
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          operand_type parts[in_word];
#pragma unroll
          for (int k = 0; k < in_word; ++k) {
            parts[k] = corner[(lane % 4 * in_word + i / 2 * in_chunk + k) * stride + lane / 4 + i % 2 * 8];
          }
          to[i] = upright::word(parts);
        }
      }
    });
  }

  __device__ __forceinline__ static void multiply(a_tile const& a, b_tile const& b, sum_tile& sums) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
#pragma unroll
      for (int tile = 0; tile < column_tiles; ++tile) {
        mma::multiply(sums.values[0][tile], b.words[step][tile], a.words[step][0]);
      }
    }
  }

  /// Visits sums. Sums: one tile, or several whose sums are visited together.
  template <class Visit, class... Sums>
  __device__ __forceinline__ static void each(G const& group, Visit const& visit, Sums&... sums) {
    int const lane = group.lane % lanes_in_a_warp;
#pragma unroll
    for (int tile = 0; tile < column_tiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        visit(first_row(group) + lane % 4 * 2 + i % 2, 16 * tile + lane / 4 + i / 2 * 8, sums.values[0][tile][i]...);
      }
    }
  }

 private:
  template <class Load>
  __device__ __forceinline__ static void each_operand(b_tile& b, Load const& load) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
#pragma unroll
      for (int tile = 0; tile < column_tiles; ++tile) {
        load(b.words[step][tile], step, tile);
      }
    }
  }
};

/// Rows of these fragments.
template <class T, class Shape, class G>
struct turned_rows {
  using registers = turned_fragments<T, Shape, G>;
  using group_type = G;
  using sum_tile = typename registers::sum_tile;
  static constexpr int holders = 8;
  static constexpr int holders_apart = 4;
  static constexpr int rows = Shape::m;
  static constexpr int columns = Shape::n;
  static constexpr int tiles = 1;
  static constexpr int parts = 2;
  static constexpr int held = 2 * registers::column_tiles;
  static constexpr bool has_pairs = false;

  __device__ __forceinline__ static int first_row(G const& group) {
    return registers::first_row(group) + group.lane % 4 * 2;
  }
  __device__ __forceinline__ static constexpr int rows_to(int, int part) { return part; }
  /// The first column, below 8, which the compiler sees.
  __device__ __forceinline__ static int first_column(int lane) {
    return static_cast<int>(static_cast<unsigned>(lane) / 4U % 8U);
  }
  __device__ __forceinline__ static constexpr int further(int i) { return 8 * i; }
  template <class Sums>
  __device__ __forceinline__ static auto& sum(Sums& sums, int, int part, int i) {
    return sums.values[0][i / 2][i % 2 * 2 + part];
  }
  /// Rounds two rows of eight columns to a word, and transposes it.
  template <class Next, int First>
  __device__ __forceinline__ static void as_operand(G const&, sum_tile const& sums, typename Next::a_tile& a) {
    using next_operand = typename Next::operand_type;
    static_assert(is_16_bit_float<next_operand> && First % 16 == 0,
                  "tessera: sums of tensor cores become operands of bfloat16 or float16");
#pragma unroll
    for (int step = 0; step < Next::depth / 16; ++step) {
#pragma unroll
      for (int word = 0; word < 2; ++word) {
        auto const& from = sums.values[0][First / 16 + step];
        a.words[step][0][word] = transposed_matrix(pack_pair<next_operand>(from[2 * word], from[2 * word + 1]));
      }
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
