// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Scalar: a type that values are stored in. `scalar_traits<T>` says what its bits mean; `load` and `store` convert.
///
///     template <tessera::Scalar T>
///     struct numbers {
///       T const* values;
///       float first() const { return tessera::load(values[0]); }
///     };
///
/// Laws, for every bit pattern b and every x of the compute type:
///   1. to_bits(from_bits<T>(b)) == b.
///   2. load is exact: store<T>(load(v)) is v again, bit for bit, unless v is a NaN or an infinity that saturates.
///   3. store rounds to the nearest value, ties to the one with an even last bit; the result never has the other sign.
///   4. store of a NaN is scalar_traits<T>::nan_bits, except where T is the compute type itself.
/// Storage types do no arithmetic: code that computes loads a value first.
#pragma once

#include <concepts>
#include <type_traits>

#include <tessera/core/because.hpp>
#include <tessera/core/precision.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
template <class T>
concept Scalar =
  (std::is_trivially_copyable_v<T> || because<"a Scalar is trivially copyable">) &&
  (requires {
    requires scalar_traits<T>::bits == 8 * sizeof(T);
    requires 1 + scalar_traits<T>::exponent_bits + scalar_traits<T>::mantissa_bits == scalar_traits<T>::bits;
    { scalar_traits<T>::exponent_bias } -> std::convertible_to<int>;
    { scalar_traits<T>::has_infinity } -> std::convertible_to<bool>;
    { scalar_traits<T>::name() } -> std::convertible_to<char const*>;
  } || because<"a Scalar has scalar_traits<T> with bits, exponent_bits, mantissa_bits, ..., name()">) &&
  (requires(T value, typename scalar_traits<T>::bits_type pattern) {
    { scalar_traits<T>::to_bits(value) } -> std::same_as<typename scalar_traits<T>::bits_type>;
    { scalar_traits<T>::from_bits(pattern) } -> std::same_as<T>;
  } || because<"a Scalar has scalar_traits<T>::to_bits(T) -> bits_type and ::from_bits(bits_type) -> T">) &&
  (requires(T value, typename scalar_traits<T>::compute_type computed) {
    { scalar_traits<T>::load(value) } -> std::same_as<typename scalar_traits<T>::compute_type>;
    { scalar_traits<T>::store(computed) } -> std::same_as<T>;
  } || because<"a Scalar has scalar_traits<T>::load(T) -> compute_type and ::store(compute_type) -> T">);
// clang-format on

static_assert(Scalar<bfloat16>);
static_assert(!Scalar<int>, "an int has no scalar_traits");

}  // namespace v0
}  // namespace tessera
