// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Multiplies one tile of a TileMma on a GPU, from operands in each layout, and checks the product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/testing/reference.hpp>
#include <tessera/tile/cuda/gemm_tile.cuh>
#include <tessera/tile/cuda/row_tile.cuh>
#include <tessera/tile/staged_tile.hpp>

#include "support/catch.hpp"

namespace tessera_test {

using namespace tessera;

/// How b lies: depth x columns or columns x depth, in global memory or staged in shared memory.
enum class b_layout { rows, staged_rows, transposed, staged_transposed };

/// sums = a * b + a * b by one tile: a row_tile where each warp has eight rows.
template <class T, class Shape, int Lanes, b_layout Layout>
struct one_tile {
  using value_type = typename gemm_operand<T>::value_type;
  using sum_type = typename gemm_operand<T>::sum_type;
  static constexpr int lanes = Lanes;
  static constexpr bool is_staged = Layout == b_layout::staged_rows || Layout == b_layout::staged_transposed;
  static constexpr bool is_transposed = Layout == b_layout::transposed || Layout == b_layout::staged_transposed;
  static constexpr int b_rows = is_transposed ? Shape::n : Shape::k;
  static constexpr int b_columns = is_transposed ? Shape::k : Shape::n;
  struct scratch_type {
    staged_tile<value_type, Shape::m, Shape::k> a;
    staged_tile<value_type, b_rows, b_columns> b;
  };

  value_type const* a;
  value_type const* b;
  sum_type* sums;
  std::int64_t gap;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t, scratch_type& scratch) const {
    using M = std::conditional_t<4 * Shape::m == Lanes, row_tile<T, Shape, Group>, gemm_tile<T, Shape, Group>>;
    static_assert(TileMma<M>);
    value_type const* a_from = a;
    value_type const* b_from = b;
    std::int64_t a_stride = Shape::k + gap;
    std::int64_t b_stride = b_columns + gap;
    if constexpr (is_staged) {
      for (int lane : group) {
        for (int i = lane; i < Shape::m * Shape::k; i += lanes) {
          scratch.a(i / Shape::k, i % Shape::k) = a[i / Shape::k * a_stride + i % Shape::k];
        }
        for (int i = lane; i < b_rows * b_columns; i += lanes) {
          scratch.b(i / b_columns, i % b_columns) = b[i / b_columns * b_stride + i % b_columns];
        }
      }
      group.sync();
      a_from = scratch.a.values;
      b_from = scratch.b.values;
      a_stride = scratch.a.stride;
      b_stride = scratch.b.stride;
    }
    typename M::a_tile a_tile;
    typename M::b_tile b_tile;
    typename M::sum_tile sum_tile;
    M::load_a(group, a_tile, a_from, a_stride);
    if constexpr (is_transposed) {
      M::load_b_transposed(group, b_tile, b_from, b_stride);
    } else {
      M::load_b(group, b_tile, b_from, b_stride);
    }
    M::clear(group, sum_tile);
    M::multiply(group, a_tile, b_tile, sum_tile);
    M::multiply(group, a_tile, b_tile, sum_tile);
    M::store(group, sum_tile, sums, Shape::n + gap);
  }
};

/// Numbers of an element along the depth.
template <class T>
constexpr std::size_t in_element = std::is_same_v<T, int4x2> ? 2 : 1;

/// The element whose numbers lie `stride` apart.
template <class T>
T whole_number(double const* numbers, std::size_t stride = 1) {
  double const number = *numbers;
  if constexpr (std::is_same_v<T, int4x2>) {
    return pack_int4(static_cast<int>(number), static_cast<int>(numbers[stride]));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(number);
  } else {
    return store<T>(static_cast<float>(number));
  }
}

template <class T, class Shape, int Lanes, b_layout Layout>
void check_tile() {
  using program = one_tile<T, Shape, Lanes, Layout>;
  using value = typename program::value_type;
  using sum = typename program::sum_type;
  constexpr std::int64_t gap = 3;
  constexpr std::size_t depth = in_element<value> * Shape::k;
  constexpr double rubbish[2] = {5, 5};
  std::vector<double> a(Shape::m * depth);
  std::vector<double> b(depth * Shape::n);
  std::vector<value> a_values(Shape::m * (Shape::k + gap), whole_number<value>(rubbish));
  std::vector<value> b_values(program::b_rows * (program::b_columns + gap), whole_number<value>(rubbish));
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<double>(i * 7 % 13 % 7) - 3;
  }
  for (std::size_t i = 0; i < b.size(); ++i) {
    b[i] = static_cast<double>(i * 5 % 11 % 7) - 3;
  }
  for (std::size_t i = 0; i < Shape::m * Shape::k; ++i) {
    a_values[i / Shape::k * (Shape::k + gap) + i % Shape::k] = whole_number<value>(&a[i * in_element<value>]);
  }
  for (std::size_t i = 0; i < Shape::k * Shape::n; ++i) {
    std::size_t const k = i / Shape::n;
    std::size_t const column = i % Shape::n;
    std::size_t const stride = program::b_columns + gap;
    b_values[program::is_transposed ? column * stride + k : k * stride + column] =
        whole_number<value>(&b[k * in_element<value> * Shape::n + column], Shape::n);
  }
  tessera::cuda const exec;
  buffer<value> device_a(exec, static_cast<std::int64_t>(a_values.size()));
  buffer<value> device_b(exec, static_cast<std::int64_t>(b_values.size()));
  std::vector<sum> found(Shape::m * (Shape::n + gap), sum{77});
  buffer<sum> device_sums(exec, static_cast<std::int64_t>(found.size()));
  exec.copy(a_values, device_a);
  exec.copy(b_values, device_b);
  exec.copy(found, device_sums);
  exec.run(program{device_a.data(), device_b.data(), device_sums.data(), gap}, 1);
  exec.copy(device_sums, found);
  exec.wait();
  auto const product = testing::reference_multiply(a, b, Shape::m, Shape::n, depth);
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::size_t const column = i % (Shape::n + gap);
    double const expected = column < Shape::n ? 2 * product[i / (Shape::n + gap) * Shape::n + column] : 77.0;
    wrong += static_cast<double>(found[i]) == expected ? 0 : 1;
  }
  CHECK(wrong == 0);
}

}  // namespace tessera_test
