// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_tile<T, shape<m, n, k>, Group>`: the TileMma for operands of type T (see tile/gemm_operand.hpp).
///
///     using M = gemm_tile<bfloat16, shape<64, 64, 16>, Group>;
///     typename M::sum_tile sums;
///     M::clear(group, sums);
///     for (int k = 0; k < depth; k += M::depth) {
///       M::load_a(group, a, a_from + k, a_stride);
///       M::load_b_transposed(group, b, w_from + k, w_stride);  // of x W^T: n rows of k elements
///       M::multiply(group, a, b, sums);
///     }
///     M::each(group, sums, visit);                    // visit(row, column, sum), which may change the sum
///     M::each_pair(group, sums, totals, visit_pair);  // visit_pair(row, column, sum, total): scale, add, correct
///
/// This header has plain arrays, for groups whose lanes are executed by one thread, and multiplies them with the vector
/// instructions that the processor has (tile/serial/add_products.hpp). tile/cuda/gemm_tile.cuh has the
/// same product by mma.sync for groups of CUDA threads. nvcc includes it from here; under NVRTC it must be included by
/// name. (For wgmma see program/gemm/gemm_cooperative.cuh.)
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/concepts/tile_mma.hpp>
#include <tessera/config.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/serial/load_transposed.hpp>
#include <tessera/tile/serial/multiply_codes.hpp>

#if !defined(__CUDACC_RTC__)
#include <tessera/tile/serial/add_products.hpp>
#endif

namespace tessera {
inline namespace v0 {

namespace detail {

/// Whether all lanes of a group are one thread; true for a test's groups too.
template <class G>
constexpr bool one_thread_plays() {
  if constexpr (requires { G::lanes_here; }) {
    return G::lanes_here == G::size;
  } else {
    return true;
  }
}

}  // namespace detail

template <class T, class Shape, class G = serial_group<1>>
struct gemm_tile {
  static_assert(detail::one_thread_plays<G>(),
                "tessera: a gemm_tile for groups of CUDA threads is in <tessera/tile/cuda/gemm_tile.cuh>: include it");
  /// The types of elements and sums, and how products add up.
  using operand = gemm_operand<T>;
  using group_type = G;
  using operand_type = typename operand::value_type;
  using sum_type = typename operand::sum_type;
  /// The type of an element in products.
  using wide_type = decltype(operand::widen(std::declval<operand_type>()));
  static constexpr int rows = Shape::m;
  static constexpr int columns = Shape::n;
  static constexpr int depth = Shape::k;

  struct a_tile {
    wide_type values[rows][depth];  ///< widened elements
  };
  struct b_tile {
    wide_type values[depth][columns];  ///< widened elements
  };
  struct sum_tile {
    sum_type values[rows][columns];  ///< one sum for each element of the tile
  };

  TESSERA_FN static constexpr void load_a(G const&, a_tile& a, operand_type const* from, std::int64_t stride) {
    for (int row = 0; row < rows; ++row) {
      for (int k = 0; k < depth; ++k) {
        a.values[row][k] = operand::widen(from[row * stride + k]);
      }
    }
  }
  TESSERA_FN static constexpr void load_b(G const&, b_tile& b, operand_type const* from, std::int64_t stride) {
    for (int k = 0; k < depth; ++k) {
      for (int column = 0; column < columns; ++column) {
        b.values[k][column] = operand::widen(from[k * stride + column]);
      }
    }
  }
  /// Loads b from a matrix of columns x depth elements, row after row.
  TESSERA_FN static constexpr void load_b_transposed(G const&, b_tile& b, operand_type const* from,
                                                     std::int64_t stride) {
    load_transposed(b.values, from, stride, [](operand_type const& value) { return operand::widen(value); });
  }

  TESSERA_FN static constexpr void clear(G const&, sum_tile& sums) {
    for (auto& row : sums.values) {
      for (sum_type& sum : row) {
        sum = sum_type{};
      }
    }
  }

#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // host only, called from code for both sides
#endif
  TESSERA_FN static constexpr void multiply(G const&, a_tile const& a, b_tile const& b, sum_tile& sums) {
    if constexpr (std::is_same_v<wide_type, sum_type>) {
      if (!__builtin_is_constant_evaluated()) {
        return add_products(a.values, b.values, sums.values);
      }
    }
    for (int row = 0; row < rows; ++row) {
      for (int k = 0; k < depth; ++k) {
        for (int column = 0; column < columns; ++column) {
          sum_type& sum = sums.values[row][column];
          sum = operand::multiply_add(a.values[row][k], b.values[k][column], sum);
        }
      }
    }
  }

  /// Adds a b^T for matrices of so many columns in memory, as load_a(), load_b_transposed() and multiply() do, where
  /// there is a faster way to; otherwise it returns false and does nothing.
  template <int Depth>
  TESSERA_FN static bool multiply_rows(G const&, [[maybe_unused]] operand_type const* a,
                                       [[maybe_unused]] std::int64_t a_stride, [[maybe_unused]] operand_type const* b,
                                       [[maybe_unused]] std::int64_t b_stride, [[maybe_unused]] sum_tile& sums) {
    if constexpr (std::is_same_v<T, std::int8_t> || std::is_same_v<T, int4x2>) {
      return multiply_codes<Depth>(a, a_stride, b, b_stride, sums.values);
    } else {
      return false;
    }
  }

  TESSERA_FN static constexpr void store(G const&, sum_tile const& sums, sum_type* to, std::int64_t stride) {
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        to[row * stride + column] = sums.values[row][column];
      }
    }
  }

  /// Visits each sum once, in any order, by any lane.
  template <class Visit>
  TESSERA_FN static constexpr void each(G const&, sum_tile& sums, Visit const& visit) {
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        visit(row, column, sums.values[row][column]);
      }
    }
  }

  /// Visits each sum of one tile together with the other tile's: visit(row, column, sum, other), which may change both.
  template <class Visit>
  TESSERA_FN static constexpr void each_pair(G const&, sum_tile& sums, sum_tile& others, Visit const& visit) {
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        visit(row, column, sums.values[row][column], others.values[row][column]);
      }
    }
  }
};

static_assert(TileMma<gemm_tile<float, shape<2, 3, 4>>>);

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/tile/cuda/gemm_tile.cuh>
#endif
