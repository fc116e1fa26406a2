// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Matrices as codes, made on any executor, beside a loop over the Quantizer's own functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <tessera/algorithm/gemm/quantized_matrix.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/core/precision.hpp>

#include "algorithm/gemm/row_samples.hpp"
#include "support/catch.hpp"

namespace tessera_test {

template <Quantizer Q>
struct matrix_codes {
  std::vector<stored_code<Q>> codes;
  std::vector<typename Q::params_type> params;

  matrix_codes(std::int64_t rows, std::int64_t columns)
      : codes(static_cast<std::size_t>(rows * quantized_matrix<Q>::code_columns(columns))),
        params(static_cast<std::size_t>(Q::group == whole_tensor ? 1 : rows * quantized_matrix<Q>::groups(columns))) {
    for (auto& code : codes) {
      std::memset(static_cast<void*>(&code), 0x5a, sizeof(code));  // what nobody writes shows
    }
    for (auto& of_group : params) {
      std::memset(static_cast<void*>(&of_group), 0x5a, sizeof(of_group));
    }
  }
  bool operator==(matrix_codes const& other) const {
    return has_bytes_of(codes, other.codes) && has_bytes_of(params, other.params);
  }

 private:
  template <class U>
  static bool has_bytes_of(std::vector<U> const& a, std::vector<U> const& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](U const& x, U const& y) { return std::memcmp(&x, &y, sizeof(U)) == 0; });
  }
};

/// Codes and parameters by the Quantizer's own functions, one value after the other.
template <Quantizer Q, class T>
matrix_codes<Q> expected_codes(row_samples<T> const& samples) {
  matrix_codes<Q> expected(samples.rows, samples.columns);
  Q const quantizer;
  std::int64_t const groups = quantized_matrix<Q>::groups(samples.columns);
  std::int64_t const group = Q::group == whole_tensor ? samples.columns : Q::group;
  auto const reducer = quantizer.range();
  auto range = reducer.identity();
  auto const encode = [&](std::int64_t row, std::int64_t which, typename Q::params_type const& params) {
    for (std::int64_t i = which * group; i < std::min((which + 1) * group, samples.columns); ++i) {
      auto const code = quantizer.encode(samples.at(row, i), params);
      if constexpr (quantized_matrix<Q>::is_packed) {
        auto& pair = expected.codes[static_cast<std::size_t>((row * samples.columns + i) / 2)];
        pair = i % 2 == 0 ? pack_int4(code, 0) : pack_int4(low(pair), code);
      } else {
        expected.codes[static_cast<std::size_t>(row * samples.columns + i)] = code;
      }
    }
  };
  for (std::int64_t row = 0; row < samples.rows; ++row) {
    for (std::int64_t which = 0; which < groups; ++which) {
      range = Q::group == whole_tensor ? range : reducer.identity();
      for (std::int64_t i = which * group; i < std::min((which + 1) * group, samples.columns); ++i) {
        reducer.push(range, samples.at(row, i));
      }
      if (Q::group != whole_tensor) {
        auto& params = expected.params[static_cast<std::size_t>(row * groups + which)];
        params = quantizer.fit(range);
        encode(row, which, params);
      }
    }
  }
  if (Q::group == whole_tensor) {
    expected.params[0] = quantizer.fit(range);
    for (std::int64_t row = 0; row < samples.rows; ++row) {
      encode(row, 0, expected.params[0]);
    }
  }
  return expected;
}

/// A matrix of codes in an executor's memory, from quantize().
template <Quantizer Q, Executor Exec>
struct codes_on {
  using method = quantized_matrix<Q>;
  Exec exec;
  std::int64_t rows;
  std::int64_t columns;
  buffer<stored_code<Q>> codes;
  buffer<typename Q::params_type> params;

  template <class T>
  codes_on(Exec const& on, row_samples<T> const& samples)
      : exec(on),
        rows(samples.rows),
        columns(samples.columns),
        codes(sent(exec, matrix_codes<Q>(rows, columns).codes)),
        params(sent(exec, matrix_codes<Q>(rows, columns).params)) {
    auto const values = sent(exec, samples.values);
    auto const plan = method::plan(exec, rows, columns);
    buffer<std::byte> memory(exec, plan.bytes());
    method::quantize(exec, Q{}, samples.view_of(values.data()), codes_view(), params_view(), workspace(plan, memory));
    exec.wait();
  }
  [[nodiscard]] matrix_view<stored_code<Q>> codes_view() {
    return {codes.data(), {rows, method::code_columns(columns)}};
  }
  [[nodiscard]] matrix_view<typename Q::params_type> params_view() {
    return {params.data(), {Q::group == whole_tensor ? 1 : rows, method::groups(columns)}};
  }
  [[nodiscard]] matrix_codes<Q> found() const {
    matrix_codes<Q> all(rows, columns);
    all.codes = fetched(exec, codes);
    all.params = fetched(exec, params);
    return all;
  }
  template <class T>
  [[nodiscard]] std::vector<T> dequantized() {
    auto values = sent(exec, std::vector<T>(static_cast<std::size_t>(rows * columns), store<T>(77.0F)));
    method::dequantize(exec, Q{}, matrix_view<stored_code<Q> const>(codes_view()),
                       matrix_view<typename Q::params_type const>(params_view()),
                       matrix_view<T>(values.data(), {rows, columns}));
    return fetched(exec, values);
  }
};

/// Quantizes and dequantizes samples; everything must have the bits of loops over the Quantizer's functions.
template <Quantizer Q, class T, Executor Exec>
void check_quantized(Exec const& exec, row_samples<T> const& samples) {
  CAPTURE(Q::group, samples.rows, samples.columns, samples.is_turned);
  codes_on<Q, Exec> quantized(exec, samples);
  auto const expected = expected_codes<Q>(samples);
  CHECK(quantized.found() == expected);
  auto const values = quantized.template dequantized<T>();
  std::int64_t const groups = quantized_matrix<Q>::groups(samples.columns);
  int wrong = 0;
  for (std::int64_t row = 0; row < samples.rows; ++row) {
    for (std::int64_t column = 0; column < samples.columns; ++column) {
      std::int64_t const at = row * samples.columns + column;
      typename Q::code_type code;
      if constexpr (quantized_matrix<Q>::is_packed) {
        auto const pair = expected.codes[static_cast<std::size_t>(at / 2)];
        int const signed_code = column % 2 == 0 ? low(pair) : high(pair);
        code = static_cast<typename Q::code_type>(std::is_unsigned_v<typename Q::code_type> ? signed_code & 15
                                                                                            : signed_code);
      } else {
        code = expected.codes[static_cast<std::size_t>(at)];
      }
      auto const& params =
          expected.params[static_cast<std::size_t>(Q::group == whole_tensor ? 0 : row * groups + column / Q::group)];
      T const value = store<T>(Q{}.decode(code, params));
      wrong += to_bits(values[static_cast<std::size_t>(at)]) != to_bits(value);
    }
  }
  CHECK(wrong == 0);
}

/// The same for awkward extents, of all kinds of groups.
template <class T, Executor Exec>
void check_quantizers(Exec const& exec) {
  for (std::int64_t const columns : {0, 2, 14, 16, 64, 66, 130, 256, 514, 1040}) {
    for (bool const is_turned : {false, true}) {
      row_samples<T> const samples(5, columns, is_turned);
      check_quantized<symmetric_quantizer<8, 64>>(exec, samples);
      check_quantized<two_to_a_byte<symmetric_quantizer<4, 64>>>(exec, samples);
      check_quantized<two_to_a_byte<symmetric_quantizer<4, 24>>>(exec, samples);
      check_quantized<symmetric_quantizer<8, 512>>(exec, samples);
      check_quantized<symmetric_quantizer<8, whole_tensor>>(exec, samples);
    }
  }
  row_samples<T> const odd(3, 77, false);
  check_quantized<symmetric_quantizer<8, 7>>(exec, odd);
  check_quantized<symmetric_quantizer<8, 600>>(exec, odd);
  check_quantized<symmetric_quantizer<4, whole_tensor>>(exec, row_samples<T>(2, 9001, false));
  row_samples<T> special(3, 128, false);
  special.values[5] = store<T>(std::numeric_limits<float>::quiet_NaN());
  special.values[200] = store<T>(std::numeric_limits<float>::infinity());
  check_quantized<symmetric_quantizer<8, 64>>(exec, special);
  check_quantized<symmetric_quantizer<8, whole_tensor>>(exec, special);
}

}  // namespace tessera_test
