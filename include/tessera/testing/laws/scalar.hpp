// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a Scalar.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/concepts/scalar.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/law_report.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

namespace detail {

/// All patterns of a type of up to 16 bits; of a wider one every exponent with some mantissas, and random ones.
template <Scalar T>
std::vector<std::uint64_t> patterns_of() {
  using traits = scalar_traits<T>;
  std::vector<std::uint64_t> patterns;
  if constexpr (traits::bits <= 16) {
    for (std::uint64_t pattern = 0; pattern < std::uint64_t{1} << traits::bits; ++pattern) {
      patterns.push_back(pattern);
    }
  } else {
    std::uint64_t const one = std::uint64_t{1} << traits::mantissa_bits;
    for (std::uint64_t exponent = 0; exponent < std::uint64_t{2} << traits::exponent_bits; ++exponent) {
      for (std::uint64_t mantissa : {std::uint64_t{0}, std::uint64_t{1}, one / 2, one - 1}) {
        patterns.push_back(exponent * one + mantissa);
      }
    }
    for (std::uint64_t i = 0; i < 10000; ++i) {
      patterns.push_back(hash(11, i) >> (64 - traits::bits));
    }
  }
  return patterns;
}

template <Scalar T>
T value_of(std::uint64_t pattern) {
  return scalar_traits<T>::from_bits(static_cast<typename scalar_traits<T>::bits_type>(pattern));
}

/// Checks the numbers between the value of a pattern and the next one, where they have numbers between them.
template <Scalar T>
void check_rounding(law_report& report, std::uint64_t pattern) {
  using compute_type = typename scalar_traits<T>::compute_type;
  compute_type const value = load(value_of<T>(pattern));
  compute_type const next = load(value_of<T>(pattern + 1));
  compute_type const middle = value + (next - value) / 2;
  bool const is_between = value < middle && middle < next;
  if (!std::isfinite(value) || !std::isfinite(next) || !is_between || middle - value != next - middle) {
    return;
  }
  std::string const name = "between patterns " + std::to_string(pattern) + " and " + std::to_string(pattern + 1);
  auto const bits = [](compute_type number) { return std::uint64_t{to_bits(store<T>(number))}; };
  std::uint64_t const even = pattern + pattern % 2;
  report.expect(bits(middle) == even, "store rounds a tie to the even one", name);
  report.expect(bits(std::nextafter(middle, value)) == pattern && bits(std::nextafter(middle, next)) == pattern + 1,
                "store rounds to the nearest", name);
  report.expect(std::signbit(load(store<T>(-middle))), "store keeps the sign", name);
}

}  // namespace detail

/// Checks T on all of its bit patterns, or, where it has more than 16 bits, on some of each exponent.
template <Scalar T>
law_report check_laws() {
  using traits = scalar_traits<T>;
  using compute_type = typename traits::compute_type;
  law_report report;
  for (std::uint64_t pattern : detail::patterns_of<T>()) {
    std::string const name = "pattern " + std::to_string(pattern);
    T const value = detail::value_of<T>(pattern);
    compute_type const number = load(value);
    report.expect(to_bits(value) == pattern, "to_bits undoes from_bits", name);
    bool const saturates = std::isinf(number) && !std::isinf(load(store<T>(number)));
    if (!std::isnan(number) && !saturates) {
      report.expect(to_bits(store<T>(number)) == pattern, "store undoes load", name);
      report.expect(std::signbit(load(store<T>(number))) == std::signbit(number), "store keeps the sign", name);
    }
    if (pattern + 1 < std::uint64_t{1} << (traits::bits - 1)) {
      detail::check_rounding<T>(report, pattern);
    }
  }
  auto const none = static_cast<compute_type>(std::nan(""));
  report.expect(std::isnan(load(store<T>(none))), "store of a NaN is one");
  if constexpr (!std::is_same_v<T, compute_type> && requires { traits::nan_bits; }) {
    report.expect(to_bits(store<T>(none)) == traits::nan_bits && to_bits(store<T>(-none)) == traits::nan_bits,
                  "store of a NaN has the bits nan_bits");
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
