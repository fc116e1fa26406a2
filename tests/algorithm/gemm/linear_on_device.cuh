// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Linear layers on a GPU against the reference in double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/gemm/linear.cuh>
#include <tessera/exec/buffer.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/gemm_reference.hpp"

namespace tessera_test {

/// Where a matrix lies: its first element this far from an aligned address, its rows this much further apart than long.
struct placement {
  std::int64_t offset = 0;
  std::int64_t gap = 0;
};

/// The gap that makes rows of `columns` elements begin at multiples of 16 bytes.
template <class T>
placement aligned(std::int64_t columns) {
  auto const step = static_cast<std::int64_t>(16 / sizeof(T));
  return {0, (step - columns % step) % step};
}

/// A matrix on the device and its copy on the host, of which the view is one.
template <class T>
struct matrix_on_device {
  std::vector<T> host;
  tessera::buffer<T> device;
  std::int64_t rows;
  std::int64_t columns;
  placement at;
  bool is_across;  ///< whether columns are what lies next to each other in memory, `gap` more elements apart than long

  matrix_on_device(tessera::cuda const& exec, std::int64_t row_count, std::int64_t column_count, placement where,
                   bool lies_across = false)
      : host(static_cast<std::size_t>(where.offset + (lies_across ? column_count * (row_count + where.gap)
                                                                  : row_count * (column_count + where.gap)))),
        device(exec, static_cast<std::int64_t>(host.size())),
        rows(row_count),
        columns(column_count),
        at(where),
        is_across(lies_across) {}
  tessera::matrix_view<T> view_of(T* first) const {
    if (is_across) {
      return {first + at.offset, {rows, columns}, {1, rows + at.gap}};
    }
    return {first + at.offset, {rows, columns}, {columns + at.gap, 1}};
  }
  tessera::matrix_view<T> on_host() { return view_of(host.data()); }
  tessera::matrix_view<T> on_device() { return view_of(device.data()); }
};

template <class T>
matrix_on_device<T> sampled(tessera::cuda const& exec, std::int64_t rows, std::int64_t columns, placement at,
                            std::uint64_t seed, bool is_across = false) {
  matrix_on_device<T> matrix(exec, rows, columns, at, is_across);
  matrix.host = operand_samples<T>(static_cast<std::int64_t>(matrix.host.size()), seed);
  return matrix;
}

/// The value of outputs that were not written.
template <class T>
T poison() {
  T value;
  std::memset(&value, 0x5b, sizeof value);
  return value;
}

/// How many elements are wrong; those between the rows, which must stay as they were, count too.
template <class Operand, class Value, class Output, class Multiply>
std::int64_t wrong_on_device(tessera::cuda const& exec, matrix_on_device<Value>& x, matrix_on_device<Value>& w,
                             matrix_on_device<Output>& y, std::vector<float> const& bias, Multiply const& multiply) {
  y.host.assign(y.host.size(), poison<Output>());
  exec.copy(x.host, x.device);
  exec.copy(w.host, w.device);
  exec.copy(y.host, y.device);
  multiply();
  exec.copy(y.device, y.host);
  exec.wait();
  std::int64_t wrong = wrong_sums<Operand, Value, Output>(x.on_host(), w.on_host(), bias, y.on_host());
  Output const untouched = poison<Output>();
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(y.host.size()); ++i) {
    std::int64_t const inside = i - y.at.offset;
    if (inside < 0 || inside % (y.columns + y.at.gap) >= y.columns) {
      wrong += std::memcmp(&y.host[static_cast<std::size_t>(i)], &untouched, sizeof untouched) != 0 ? 1 : 0;
    }
  }
  return wrong;
}

/// Checks a layer without a bias and with one, which bf16 stands for of 16 bits: there are many programs of these.
template <class Operand, class Output>
void check_linear(std::int64_t tokens, std::int64_t columns, std::int64_t depth, placement operands,
                  placement outputs) {
  using value = typename tessera::gemm_operand<Operand>::value_type;
  using layer = tessera::linear<Operand>;
  CAPTURE(tokens, columns, depth, operands.offset, operands.gap, outputs.offset, outputs.gap);
  tessera::cuda const exec;
  auto x = sampled<value>(exec, tokens, depth, operands, 1);
  auto w = sampled<value>(exec, columns, depth, operands, 2);
  matrix_on_device<Output> y(exec, tokens, columns, outputs);
  CHECK(wrong_on_device<Operand>(exec, x, w, y, {},
                                 [&] { layer::forward(exec, x.on_device(), w.on_device(), y.on_device()); }) == 0);
  if constexpr (!std::is_same_v<Operand, tessera::float16>) {
    auto const bias = operand_samples<float>(columns, 3);
    tessera::buffer<float> device_bias(exec, columns);
    exec.copy(bias, device_bias);
    CHECK(wrong_on_device<Operand>(exec, x, w, y, bias, [&] {
            layer::forward(exec, x.on_device(), w.on_device(), device_bias.view(), y.on_device());
          }) == 0);
  }
}

/// Inputs or weights along the depth or across it, with rows of memory at multiples of 16 bytes.
template <class T>
matrix_on_device<T> ordered_samples(tessera::cuda const& exec, std::int64_t rows, std::int64_t depth,
                                    std::uint64_t seed, bool is_across) {
  return sampled<T>(exec, rows, depth, aligned<T>(is_across ? rows : depth), seed, is_across);
}

/// Which of the operands lie across the depth, in the order of with_each_order().
struct across_depth {
  bool inputs;
  bool weights;
};
/// Calls `use` for each pair of orders with an operand across the depth.
template <class Use>
void with_each_order(Use const& use) {
  for (across_depth const across : {across_depth{false, true}, across_depth{true, true}, across_depth{true, false}}) {
    CAPTURE(across.inputs, across.weights);
    use(across);
  }
}

/// Checks aligned operands that lie across the depth: both, or one of them.
template <class Operand, class Output>
void check_across(std::int64_t tokens, std::int64_t columns, std::int64_t depth) {
  CAPTURE(tokens, columns, depth);
  tessera::cuda const exec;
  with_each_order([&](across_depth across) {
    auto x = ordered_samples<Operand>(exec, tokens, depth, 1, across.inputs);
    auto w = ordered_samples<Operand>(exec, columns, depth, 2, across.weights);
    matrix_on_device<Output> y(exec, tokens, columns, aligned<Output>(columns));
    CHECK(wrong_on_device<Operand>(exec, x, w, y, {}, [&] {
            tessera::linear<Operand>::forward(exec, x.on_device(), w.on_device(), y.on_device());
          }) == 0);
  });
}

/// Checks operands that are all aligned: the program for warpgroups runs where there is one.
template <class Operand, class Output>
void check_aligned(std::int64_t tokens, std::int64_t columns, std::int64_t depth) {
  check_linear<Operand, Output>(tokens, columns, depth,
                                aligned<typename tessera::gemm_operand<Operand>::value_type>(depth),
                                aligned<Output>(columns));
}

}  // namespace tessera_test
