// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Linear layers on a GPU against the reference in double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
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

  matrix_on_device(tessera::cuda const& exec, std::int64_t row_count, std::int64_t column_count, placement where)
      : host(static_cast<std::size_t>(where.offset + row_count * (column_count + where.gap))),
        device(exec, static_cast<std::int64_t>(host.size())),
        rows(row_count),
        columns(column_count),
        at(where) {}
  tessera::matrix_view<T> view_of(T* first) const {
    return {first + at.offset, {rows, columns}, {columns + at.gap, 1}};
  }
  tessera::matrix_view<T> on_host() { return view_of(host.data()); }
  tessera::matrix_view<T> on_device() { return view_of(device.data()); }
};

template <class T>
matrix_on_device<T> sampled(tessera::cuda const& exec, std::int64_t rows, std::int64_t columns, placement at,
                            std::uint64_t seed) {
  matrix_on_device<T> matrix(exec, rows, columns, at);
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

/// Checks a layer without a bias and with one.
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
  auto const bias = operand_samples<float>(columns, 3);
  tessera::buffer<float> device_bias(exec, columns);
  exec.copy(bias, device_bias);
  CHECK(wrong_on_device<Operand>(exec, x, w, y, bias, [&] {
          layer::forward(exec, x.on_device(), w.on_device(), device_bias.view(), y.on_device());
        }) == 0);
}

/// Checks operands that are all aligned: the program for warpgroups runs where there is one.
template <class Operand, class Output>
void check_aligned(std::int64_t tokens, std::int64_t columns, std::int64_t depth) {
  check_linear<Operand, Output>(tokens, columns, depth,
                                aligned<typename tessera::gemm_operand<Operand>::value_type>(depth),
                                aligned<Output>(columns));
}

}  // namespace tessera_test
