// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The gemm_tile for groups of CUDA threads: tensor cores by mma.sync, and multiply-adds in fp32 for float.
///
/// Warps divide the tile as a grid. Each holds fragments of its rows of a, of its columns of b, and of its sums in
/// registers. From shared memory whose rows begin at multiples of 16 bytes, fragments are loaded by ldmatrix; from
/// other memory element by element. Before sm_89 8-bit floats are widened to fp16. From sm_90 on pairs of 4-bit
/// integers are widened to bytes: for 32 x 64 sums of 64 codes a warp executes 848 instructions, loads and stores
/// included; before, by an instruction of their own, 564, and with ptxas's subroutine in that one's place 3800.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/load_matrix.cuh>
#include <tessera/tile/cuda/mma.cuh>
#include <tessera/tile/gemm_tile.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether T is an 8-bit float that this architecture multiplies only as fp16.
template <class T>
__device__ constexpr bool is_multiplied_as_half() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  return std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2>;
#else
  return false;
#endif
}

/// Four 8-bit floats as two pairs of fp16, exact.
template <class T>
__device__ __forceinline__ uint2 unpack_four(std::uint32_t word) {
  if constexpr (std::is_same_v<T, float8_e4m3>) {
    return unpack_four_e4m3(word);
  } else {
    return unpack_four_e5m2(word);
  }
}

/// Whether T is pairs of 4-bit integers, which this architecture multiplies only as bytes.
template <class T>
__device__ constexpr bool is_multiplied_as_bytes() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  return std::is_same_v<T, int4x2>;
#else
  return false;
#endif
}

/// The low or the high values of a word's four pairs as bytes. With its sign bit flipped and the byte's highest bit
/// set, a value is 136 more. Subtracting 8 borrows from no other byte, and flipping the byte's highest bit leaves the
/// value.
__device__ __forceinline__ std::uint32_t widen_half_pairs(std::uint32_t word, int half) {
  return ((((word >> (4 * half)) & 0x0f0f0f0fU) ^ 0x88888888U) - 0x08080808U) ^ 0x80808080U;
}

/// Multiplies fragments once, those of pairs as two of bytes, in which lanes hold other indices of the depth than the
/// instruction's, the same ones of a and of b.
template <class T, class Sum>
__device__ __forceinline__ void multiply_fragments(Sum (&sums)[4], std::uint32_t const (&a)[4],
                                                   std::uint32_t const (&b)[2]) {
  if constexpr (is_multiplied_as_bytes<T>()) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      std::uint32_t const wide_a[4] = {widen_half_pairs(a[0], i), widen_half_pairs(a[1], i), widen_half_pairs(a[2], i),
                                       widen_half_pairs(a[3], i)};
      std::uint32_t const wide_b[2] = {widen_half_pairs(b[0], i), widen_half_pairs(b[1], i)};
      warp_mma<std::int8_t>::multiply(sums, wide_a, wide_b);
    }
  } else {
    warp_mma<T>::multiply(sums, a, b);
  }
}

/// The grid in which a group's warps divide a tile: as many rows as columns of warps, or twice as many columns; fewer
/// rows where the tile's rows are not so many 16s.
template <int Warps, int TileRows>
struct warp_grid {
  static constexpr int count_rows() {
    int rows = 1;
    while (4 * rows * rows <= Warps && Warps % (2 * rows) == 0 && TileRows % (2 * rows * 16) == 0) {
      rows *= 2;
    }
    return rows;
  }
  static constexpr int rows = count_rows();
  static constexpr int columns = Warps / rows;
};

/// The grid in which each warp has whole rows of a tile.
template <int Warps>
struct grid_of_rows {
  static constexpr int rows = Warps;
  static constexpr int columns = 1;
};

/// The tile as fragments for tensor cores. Grid: how warps divide it.
template <class T, class Shape, class G, class Grid = warp_grid<G::size / lanes_in_a_warp, Shape::m>>
struct gemm_fragments {
  using operand = gemm_operand<T>;
  using operand_name = T;
  using operand_type = typename operand::value_type;
  using sum_type = typename operand::sum_type;
  using mma = warp_mma<T>;
  using grid = Grid;
  static constexpr int row_tiles = Shape::m / grid::rows / 16;
  static constexpr int column_tiles = Shape::n / grid::columns / 8;
  static constexpr int steps = Shape::k / mma::depth;
  static constexpr int in_word = 4 / static_cast<int>(sizeof(operand_type));
  static constexpr int in_chunk = 4 * in_word;
  static_assert(row_tiles * grid::rows * 16 == Shape::m && column_tiles * grid::columns * 8 == Shape::n &&
                    steps * mma::depth == Shape::k && row_tiles > 0 && column_tiles > 0 && steps > 0,
                "tessera: this gemm_tile's rows must be a multiple of 16 for each row of warps, its columns of 8 for "
                "each column of warps, its depth of 32 bytes");

  struct a_tile {
    std::uint32_t words[steps][row_tiles][4];
  };
  struct b_tile {
    std::uint32_t words[steps][column_tiles][2];
  };
  struct sum_tile {
    sum_type values[row_tiles][column_tiles][4];
  };

  /// The coordinate at which a lane's part begins.
  struct lane_coordinate {
    int lane;
    int row;
    int column;
  };
  __device__ __forceinline__ static lane_coordinate of(G const& group) {
    int const warp = group.lane / lanes_in_a_warp;
    return {group.lane % lanes_in_a_warp, warp / grid::columns * row_tiles * 16,
            warp % grid::columns * column_tiles * 8};
  }

  /// Four bytes along the depth as one word.
  __device__ __forceinline__ static std::uint32_t word(operand_type const* from) {
    operand_type parts[in_word];
#pragma unroll
    for (int i = 0; i < in_word; ++i) {
      parts[i] = from[i];
    }
    std::uint32_t bits;
    memcpy(&bits, parts, sizeof bits);
    return bits;
  }
  __device__ __forceinline__ static bool suits_load_matrix(operand_type const* from, std::int64_t stride) {
    auto const bits =
        reinterpret_cast<std::uint64_t>(from) | (static_cast<std::uint64_t>(stride) * sizeof(operand_type));
    return bits % 16 == 0 && __isShared(from);
  }
  __device__ __forceinline__ static std::uint32_t shared(operand_type const* from) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(from));
  }

  /// IsStaged: rows lie in shared memory and begin at multiples of 16 bytes, as those of a staged_tile.
  template <bool IsStaged = false>
  __device__ __forceinline__ static void load_a(G const& group, a_tile& a, operand_type const* from,
                                                std::int64_t stride) {
    lane_coordinate const at = of(group);
    bool const by_matrix = IsStaged || suits_load_matrix(from, stride);
#pragma unroll
    for (int step = 0; step < steps; ++step) {
#pragma unroll
      for (int tile = 0; tile < row_tiles; ++tile) {
        operand_type const* const corner = from + (at.row + 16 * tile) * stride + step * mma::depth;
        std::uint32_t(&to)[4] = a.words[step][tile];
        if (by_matrix) {
          load_matrix_x4(to, shared(corner + at.lane % 16 * stride + at.lane / 16 * in_chunk));
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            to[i] = word(corner + (at.lane / 4 + i % 2 * 8) * stride + at.lane % 4 * in_word + i / 2 * in_chunk);
          }
        }
      }
    }
  }

  /// Loads b by one instruction for two tiles of eight columns: load(words, step, tile) reads those of `tile` and of
  /// the one after it.
  template <class Load>
  __device__ __forceinline__ static void load_pairs(b_tile& b, Load const& load) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
#pragma unroll
      for (int tile = 0; tile < column_tiles; tile += 2) {
        std::uint32_t words[4];
        load(words, static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(tile));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          b.words[step][tile + i / 2][i % 2] = words[i];
        }
      }
    }
  }

  template <bool IsStaged = false>
  __device__ __forceinline__ static void load_b_transposed(G const& group, b_tile& b, operand_type const* from,
                                                           std::int64_t stride) {
    lane_coordinate const at = of(group);
    if constexpr (IsStaged && column_tiles % 2 == 0) {
      std::uint32_t const first =
          shared(from + (at.column + at.lane / 16 * 8 + at.lane % 8) * stride + at.lane / 8 % 2 * in_chunk);
      auto const row_bytes = static_cast<std::uint32_t>(stride * static_cast<std::int64_t>(sizeof(operand_type)));
      load_pairs(b, [&](std::uint32_t(&words)[4], std::uint32_t step, std::uint32_t tile) {
        load_matrix_x4(words, first + 8 * tile * row_bytes + 32 * step);
      });
    } else {
      bool const by_matrix = IsStaged || suits_load_matrix(from, stride);
#pragma unroll
      for (int step = 0; step < steps; ++step) {
#pragma unroll
        for (int tile = 0; tile < column_tiles; ++tile) {
          operand_type const* const corner = from + (at.column + 8 * tile) * stride + step * mma::depth;
          std::uint32_t(&to)[2] = b.words[step][tile];
          if (by_matrix) {
            load_matrix_x2(to, shared(corner + at.lane % 8 * stride + at.lane / 8 % 2 * in_chunk));
          } else {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              to[i] = word(corner + at.lane / 4 * stride + at.lane % 4 * in_word + i * in_chunk);
            }
          }
        }
      }
    }
  }

  template <bool IsStaged = false>
  __device__ __forceinline__ static void load_b(G const& group, b_tile& b, operand_type const* from,
                                                std::int64_t stride) {
    lane_coordinate const at = of(group);
    if constexpr (IsStaged && sizeof(operand_type) == 2 && column_tiles % 2 == 0) {
      std::uint32_t const first = shared(from + at.lane % 16 * stride + at.column + at.lane / 16 * 8);
      auto const row_bytes = static_cast<std::uint32_t>(stride * static_cast<std::int64_t>(sizeof(operand_type)));
      load_pairs(b, [&](std::uint32_t(&words)[4], std::uint32_t step, std::uint32_t tile) {
        load_matrix_x4_transposed(words, first + 16 * step * row_bytes + 16 * tile);
      });
    } else {
      bool const by_matrix = sizeof(operand_type) == 2 && (IsStaged || suits_load_matrix(from, stride));
#pragma unroll
      for (int step = 0; step < steps; ++step) {
#pragma unroll
        for (int tile = 0; tile < column_tiles; ++tile) {
          operand_type const* const corner = from + step * mma::depth * stride + at.column + 8 * tile;
          std::uint32_t(&to)[2] = b.words[step][tile];
          if (by_matrix) {
            load_matrix_x2_transposed(to, shared(corner + at.lane % 16 * stride));
          } else {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              operand_type parts[in_word];
#pragma unroll
              for (int k = 0; k < in_word; ++k) {
                parts[k] = corner[(at.lane % 4 * in_word + i * in_chunk + k) * stride + at.lane / 4];
              }
              to[i] = word(parts);
            }
          }
        }
      }
    }
  }

  __device__ __forceinline__ static void multiply(a_tile const& a, b_tile const& b, sum_tile& sums) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      if constexpr (is_multiplied_as_half<T>()) {
        multiply_widened(a.words[step], b.words[step], sums);
      } else {
#pragma unroll
        for (int i = 0; i < row_tiles * column_tiles; ++i) {
          multiply_fragments<T>(sums.values[i / column_tiles][i % column_tiles], a.words[step][i / column_tiles],
                                b.words[step][i % column_tiles]);
        }
      }
    }
  }

  /// Multiplies 8-bit floats as two fragments of fp16, each of which is widened once for all products that it is in.
  __device__ __forceinline__ static void multiply_widened(std::uint32_t const (&a)[row_tiles][4],
                                                          std::uint32_t const (&b)[column_tiles][2], sum_tile& sums) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t wide[row_tiles][4];
#pragma unroll
      for (int i = 0; i < 2 * row_tiles; ++i) {
        uint2 const pairs = unpack_four<T>(a[i / 2][2 * half + i % 2]);
        wide[i / 2][i % 2] = pairs.x;
        wide[i / 2][i % 2 + 2] = pairs.y;
      }
#pragma unroll
      for (int column = 0; column < column_tiles; ++column) {
        uint2 const columns = unpack_four<T>(b[column][half]);
#pragma unroll
        for (int row = 0; row < row_tiles; ++row) {
          warp_mma<float16>::multiply(sums.values[row][column], wide[row], {columns.x, columns.y});
        }
      }
    }
  }

  /// Visits sums. Sums: one tile, or several whose sums are visited together.
  template <class Visit, class... Sums>
  __device__ __forceinline__ static void each(G const& group, Visit const& visit, Sums&... sums) {
    lane_coordinate const at = of(group);
#pragma unroll
    for (int row = 0; row < row_tiles; ++row) {
#pragma unroll
      for (int column = 0; column < column_tiles; ++column) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          visit(at.row + 16 * row + at.lane / 4 + i / 2 * 8, at.column + 8 * column + at.lane % 4 * 2 + i % 2,
                sums.values[row][column][i]...);
        }
      }
    }
  }
};

/// The tile for multiply-adds: threads divide it as a grid, each holding every so many-th row and column.
template <class T, class Shape, class G>
struct gemm_multiply_adds {
  using operand = gemm_operand<T>;
  using operand_type = typename operand::value_type;
  using sum_type = typename operand::sum_type;
  static constexpr int thread_columns = 8;
  static constexpr int thread_rows = G::size / thread_columns;
  static constexpr int row_count = Shape::m / thread_rows;
  static constexpr int column_count = Shape::n / thread_columns;
  static_assert(row_count * thread_rows == Shape::m && column_count * thread_columns == Shape::n,
                "tessera: this gemm_tile's rows must be a multiple of an eighth of its lanes, its columns of 8");

  struct a_tile {
    sum_type values[row_count][Shape::k];
  };
  struct b_tile {
    sum_type values[column_count][Shape::k];
  };
  struct sum_tile {
    sum_type values[row_count][column_count];
  };

  __device__ __forceinline__ static void load_a(G const& group, a_tile& a, operand_type const* from,
                                                std::int64_t stride) {
    load_parts<thread_rows>(a.values, from + group.lane / thread_columns * stride, stride, 1);
  }
  __device__ __forceinline__ static void load_b_transposed(G const& group, b_tile& b, operand_type const* from,
                                                           std::int64_t stride) {
    load_parts<thread_columns>(b.values, from + group.lane % thread_columns * stride, stride, 1);
  }
  __device__ __forceinline__ static void load_b(G const& group, b_tile& b, operand_type const* from,
                                                std::int64_t stride) {
    load_parts<thread_columns>(b.values, from + group.lane % thread_columns, 1, stride);
  }

  __device__ __forceinline__ static void multiply(a_tile const& a, b_tile const& b, sum_tile& sums) {
#pragma unroll
    for (int k = 0; k < Shape::k; ++k) {
#pragma unroll
      for (int row = 0; row < row_count; ++row) {
#pragma unroll
        for (int column = 0; column < column_count; ++column) {
          sum_type& sum = sums.values[row][column];
          sum = operand::multiply_add(a.values[row][k], b.values[column][k], sum);
        }
      }
    }
  }

  /// Visits sums. Sums: one tile, or several whose sums are visited together.
  template <class Visit, class... Sums>
  __device__ __forceinline__ static void each(G const& group, Visit const& visit, Sums&... sums) {
#pragma unroll
    for (int row = 0; row < row_count; ++row) {
#pragma unroll
      for (int column = 0; column < column_count; ++column) {
        visit(row * thread_rows + group.lane / thread_columns, column * thread_columns + group.lane % thread_columns,
              sums.values[row][column]...);
      }
    }
  }

 private:
  template <int Every, int Count>
  __device__ __forceinline__ static void load_parts(sum_type (&to)[Count][Shape::k], operand_type const* from,
                                                    std::int64_t stride, std::int64_t depth_stride) {
#pragma unroll
    for (int i = 0; i < Count; ++i) {
#pragma unroll
      for (int k = 0; k < Shape::k; ++k) {
        to[i][k] = operand::widen(from[i * Every * stride + k * depth_stride]);
      }
    }
  }
};

template <class T, class Shape, class G>
using gemm_registers =
    std::conditional_t<std::is_same_v<T, float>, gemm_multiply_adds<T, Shape, G>, gemm_fragments<T, Shape, G>>;

struct set_to_zero {
  template <class Sum>
  __device__ __forceinline__ void operator()(int, int, Sum& sum) const {
    sum = Sum{};
  }
};

template <class Sum>
struct write_sum {
  Sum* to;
  std::int64_t stride;
  __device__ __forceinline__ void operator()(int row, int column, Sum sum) const { to[row * stride + column] = sum; }
};

/// What a TileMma in registers has. Registers: gemm_fragments or gemm_multiply_adds.
template <class T, class Shape, class G, class Registers>
struct tile_in_registers {
  using group_type = G;
  using operand_type = typename gemm_operand<T>::value_type;
  using sum_type = typename gemm_operand<T>::sum_type;
  static constexpr int rows = Shape::m;
  static constexpr int columns = Shape::n;
  static constexpr int depth = Shape::k;
  using registers = Registers;
  static constexpr bool has_matrices = !std::is_same_v<T, float>;  ///< whether operands are loaded by ldmatrix
  /// The operand a, rows x depth, in registers.
  using a_tile = typename registers::a_tile;
  /// The operand b, depth x columns, in registers.
  using b_tile = typename registers::b_tile;
  /// The sums, rows x columns, in registers.
  using sum_tile = typename registers::sum_tile;

  __device__ __forceinline__ static void load_a(G const& group, a_tile& a, operand_type const* from,
                                                std::int64_t stride) {
    registers::load_a(group, a, from, stride);
  }
  __device__ __forceinline__ static void load_b(G const& group, b_tile& b, operand_type const* from,
                                                std::int64_t stride) {
    registers::load_b(group, b, from, stride);
  }
  /// Fills a b_tile from the columns of the product as rows, `stride` elements apart.
  __device__ __forceinline__ static void load_b_transposed(G const& group, b_tile& b, operand_type const* from,
                                                           std::int64_t stride) {
    registers::load_b_transposed(group, b, from, stride);
  }
  /// The same from rows in shared memory that begin at multiples of 16 bytes, as those of a staged_tile: the compiler
  /// need not have other memory read, too.
  __device__ __forceinline__ static void load_staged_a(G const& group, a_tile& a, operand_type const* from,
                                                       std::int64_t stride) requires(has_matrices) {
    registers::template load_a<true>(group, a, from, stride);
  }
  __device__ __forceinline__ static void load_staged_b(G const& group, b_tile& b, operand_type const* from,
                                                       std::int64_t stride) requires(has_matrices) {
    registers::template load_b<true>(group, b, from, stride);
  }
  __device__ __forceinline__ static void load_staged_b_transposed(G const& group, b_tile& b, operand_type const* from,
                                                                  std::int64_t stride) requires(has_matrices) {
    registers::template load_b_transposed<true>(group, b, from, stride);
  }
  __device__ __forceinline__ static void clear(G const& group, sum_tile& sums) {
    registers::each(group, set_to_zero{}, sums);
  }
  __device__ __forceinline__ static void multiply(G const&, a_tile const& a, b_tile const& b, sum_tile& sums) {
    registers::multiply(a, b, sums);
  }
  __device__ __forceinline__ static void store(G const& group, sum_tile const& sums, sum_type* to,
                                               std::int64_t stride) {
    registers::each(group, write_sum<sum_type>{to, stride}, sums);
  }
  /// Calls visit(row, column, sum) for each sum that this thread holds.
  template <class Visit>
  __device__ __forceinline__ static void each(G const& group, sum_tile& sums, Visit const& visit) {
    registers::each(group, visit, sums);
  }
  /// Calls visit(row, column, sum, other) for each pair of sums at the same coordinate that this thread holds.
  template <class Visit>
  __device__ __forceinline__ static void each_pair(G const& group, sum_tile& sums, sum_tile& others,
                                                   Visit const& visit) {
    registers::each(group, visit, sums, others);
  }
};

}  // namespace detail

/// The tile in registers of a warp or a thread block, multiplied by mma.sync (sm_80 and later).
template <class T, class Shape, CudaGroup G>
struct gemm_tile<T, Shape, G> : detail::tile_in_registers<T, Shape, G, detail::gemm_registers<T, Shape, G>> {};

}  // namespace v0
}  // namespace tessera
