// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The expected results of a matrix product, in double, with the bounds that tile/gemm_operand.hpp documents.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/testing/generators.hpp>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera_test {

/// Numbers of about 1 in any type; small whole numbers for integers.
template <class T>
T operand_sample(std::uint64_t seed, std::uint64_t index) {
  float const value = tessera::testing::gauss{}.value(seed, index);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(std::lround(40.0F * value));
  } else {
    return tessera::store<T>(value);
  }
}

template <class T>
std::vector<T> operand_samples(std::int64_t count, std::uint64_t seed) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = operand_sample<T>(seed, i);
  }
  return values;
}

/// The bound of a sum's error, in units of the sum of its products' magnitudes.
template <class Operand>
double sum_bound(std::int64_t depth) {
  if constexpr (std::is_integral_v<Operand>) {
    return 0;
  } else if constexpr (std::is_same_v<Operand, tessera::float8_e4m3> || std::is_same_v<Operand, tessera::float8_e5m2>) {
    return std::ldexp(4.0, -13);
  } else {
    return std::ldexp(4.0 + static_cast<double>(depth) / 4.0, -24);
  }
}

template <class Output>
double as_double(Output value) {
  if constexpr (std::is_integral_v<Output>) {
    return static_cast<double>(value);
  } else {
    return static_cast<double>(tessera::load(value));
  }
}

template <class Output>
std::vector<double> doubles_of(std::vector<Output> const& stored) {
  std::vector<double> values;
  values.reserve(stored.size());
  for (Output const& value : stored) {
    values.push_back(as_double(value));
  }
  return values;
}
inline std::vector<double> magnitudes_of(std::vector<double> values) {
  for (double& value : values) {
    value = std::fabs(value);
  }
  return values;
}

/// Half a unit in the last place of a stored number, relative to it.
template <class Output>
double rounding_bound() {
  if constexpr (std::is_integral_v<Output>) {
    return 0;
  } else {
    return std::ldexp(1.0, -1 - tessera::scalar_traits<Output>::mantissa_bits);
  }
}

/// How many elements of `found` are not inputs * weights^T + bias within the bounds; the bias may be missing.
template <class Operand, class Value, class Output>
std::int64_t wrong_sums(tessera::matrix_view<Value const> inputs, tessera::matrix_view<Value const> weights,
                        std::vector<float> const& bias, tessera::matrix_view<Output const> found) {
  using operand = tessera::gemm_operand<Operand>;
  std::int64_t wrong = 0;
  for (std::int64_t row = 0; row < found.extent(0); ++row) {
    for (std::int64_t column = 0; column < found.extent(1); ++column) {
      double sum = 0;
      double magnitude = 0;
      for (std::int64_t k = 0; k < inputs.extent(1); ++k) {
        double const product = static_cast<double>(operand::widen(inputs(row, k))) *
                               static_cast<double>(operand::widen(weights(column, k)));
        sum += product;
        magnitude += std::fabs(product);
      }
      double const added = bias.empty() ? 0.0 : static_cast<double>(bias[static_cast<std::size_t>(column)]);
      double const expected = sum + added;
      double const got = as_double(found(row, column));
      double const bound = sum_bound<Operand>(inputs.extent(1)) * (magnitude + std::fabs(added)) +
                           rounding_bound<Output>() * std::fabs(expected) * 1.01 + 1e-30;
      bool const same = std::isfinite(expected) ? std::fabs(got - expected) <= bound
                                                : (std::isnan(expected) ? std::isnan(got) : got == expected);
      wrong += same ? 0 : 1;
    }
  }
  return wrong;
}

}  // namespace tessera_test
