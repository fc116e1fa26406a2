// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks products of 8-bit codes with scales of groups, on any executor, against double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/gemm/scaled_linear.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/explain.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/source/scaled_operand.hpp>

#include "support/catch.hpp"

namespace tessera_test {

using namespace tessera;

struct product_shape {
  std::int64_t tokens;
  std::int64_t columns;
  std::int64_t depth;
};

/// Whether scales of neighbouring rows lie next to each other, or those of neighbouring groups. Apart: those of rows
/// do, but one scale after a multiple of 16 bytes, and with one more between groups.
enum class scale_order { rows_together, rows_together_apart, groups_together };

/// Random codes with random scales, in memory of an executor and on the host.
template <class Exec, class Q, int Rows>
struct random_operand {
  using code = typename Q::code_type;
  using source = scaled_operand<Q, Rows>;
  Exec exec;
  std::int64_t rows;
  std::int64_t columns;
  scale_order order;
  std::int64_t scale_rows = divide_up(rows, std::int64_t{Rows});
  std::int64_t groups = divide_up(columns, std::int64_t{Q::group});
  std::vector<code> codes = std::vector<code>(static_cast<std::size_t>(rows * columns));
  std::int64_t apart = order == scale_order::rows_together_apart ? 1 : 0;
  std::vector<typename Q::params_type> params =
      std::vector<typename Q::params_type>(static_cast<std::size_t>((scale_rows + apart) * groups + apart));
  buffer<code> own_codes{exec, rows* columns};
  buffer<typename Q::params_type> own_params{exec, (scale_rows + apart) * groups + apart};

  random_operand(Exec const& on, std::int64_t row_count, std::int64_t column_count, scale_order layout,
                 std::uint64_t seed)
      : exec(on), rows(row_count), columns(column_count), order(layout) {
    for (std::size_t i = 0; i < codes.size(); ++i) {
      float const value = testing::gauss{}.value(seed, i);
      if constexpr (std::is_integral_v<code>) {
        codes[i] = static_cast<code>(static_cast<int>(value * 40.0F) % 128);
      } else {
        codes[i] = store<code>(value * 60.0F);
      }
    }
    for (std::size_t i = 0; i < params.size(); ++i) {
      params[i] = {0.003F + 0.01F * static_cast<float>((i * 29 + seed) % 101)};
    }
    exec.copy(codes, own_codes);
    exec.copy(params, own_params);
    exec.wait();
  }
  source of(code const* codes_at, typename Q::params_type const* params_at) const {
    shape_of_scales const strides =
        order == scale_order::groups_together ? shape_of_scales{groups, 1} : shape_of_scales{1, scale_rows + apart};
    return {{codes_at, {rows, columns}}, {params_at + apart, {scale_rows, groups}, {strides.row, strides.group}}};
  }
  source on_device() const { return of(own_codes.data(), own_params.data()); }
  source on_host() const { return of(codes.data(), params.data()); }

 private:
  struct shape_of_scales {
    std::int64_t row;
    std::int64_t group;
  };
};

/// The value of a code, an integer or a small float.
template <class T>
double value_of_code(T value) {
  if constexpr (std::is_integral_v<T>) {
    return value;
  } else {
    return static_cast<double>(load(value));
  }
}

/// Whether a result is that of the sources in double, but for what sums and outputs round. Tensor cores of sm_90 keep
/// 13 bits of the largest addend in sums of 8-bit floats.
template <class A, class B>
bool is_right(A const& a, B const& b, std::int64_t row, std::int64_t column, double found, double output_step) {
  double value = 0;
  double magnitude = 0;
  for (std::int64_t k = 0; k < a.columns(); ++k) {
    double const product = value_of_code(a.exact(row, k)) * static_cast<double>(a.scale(row, k / A::group)) *
                           value_of_code(b.exact(column, k)) * static_cast<double>(b.scale(column, k / B::group));
    value += product;
    magnitude += std::fabs(product);
  }
  double const step = std::is_integral_v<typename A::value_type> ? std::ldexp(1.0, -20) : std::ldexp(1.0, -12);
  return std::fabs(found - value) <= magnitude * step + std::fabs(value) * output_step;
}

/// Multiplies random codes and counts results that are wrong; of large products only every 37th. `program` is the one
/// that must be chosen, or null.
template <class Q, int Rows, class Output, class Exec>
std::int64_t wrong_scaled_products(Exec const& exec, product_shape shape, scale_order order,
                                   char const* program = nullptr) {
  random_operand<Exec, Q, 1> const a(exec, shape.tokens, shape.depth, order, 1);
  random_operand<Exec, Q, Rows> const b(exec, shape.columns, shape.depth, order, 2);
  std::vector<Output> found(static_cast<std::size_t>(shape.tokens * shape.columns));
  buffer<Output> outputs(exec, shape.tokens * shape.columns);
  if (!found.empty()) {
    std::memset(found.data(), 0xff, found.size() * sizeof(Output));
  }
  exec.copy(found, outputs);
  matrix_view<Output> const y(outputs.data(), {shape.tokens, shape.columns});
  if constexpr (requires { exec.options; }) {
    if (program != nullptr) {
      using problem = scaled_linear_problem<scaled_operand<Q>, scaled_operand<Q, Rows>, Output, plain_sum>;
      CHECK(explain(exec, problem{a.on_device(), b.on_device(), y, {}}).choices.at(0).program == program);
    }
  }
  scaled_linear::forward(exec, a.on_device(), b.on_device(), y);
  exec.copy(outputs, found);
  exec.wait();
  std::int64_t wrong = 0;
  auto const count = static_cast<std::int64_t>(found.size());
  std::int64_t const step = count * shape.depth > 100000000 ? 37 : 1;
  for (std::int64_t i = 0; i < count; i += step) {
    double const value = value_of_code(found[static_cast<std::size_t>(i)]);
    double const output_step = std::is_same_v<Output, float> ? 0 : std::ldexp(1.0, -8);
    wrong += is_right(a.on_host(), b.on_host(), i / shape.columns, i % shape.columns, value, output_step) ? 0 : 1;
  }
  return wrong;
}

}  // namespace tessera_test
