// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How values are stored: `scalar_traits` of every storage type, and `load` and `store` between that type and float.
///
///     auto half = tessera::store<tessera::float16>(0.1F);          // rounds to the nearest, ties to the even one
///     float value = tessera::load(half);                           // 0.0999755859375
///     int bits = tessera::scalar_traits<tessera::float16>::bits;   // 16
///
/// Both directions give the bits that CUDA's own conversions give (`__float2half_rn`, `__float2bfloat16_rn`,
/// `__nv_cvt_float_to_fp8` with `__NV_SATFINITE`, and their inverses), on host and device and in constant expressions:
///   * store of a NaN gives the one positive NaN whose bits are all ones below the sign (0x7fff, 0x7f);
///   * store of a value that is too large gives infinity in fp16 and bf16. Both 8-bit types saturate: they store it,
///     infinity included, as the largest finite value with its sign;
///   * load of a NaN gives 0x7fffffff from fp16 and both 8-bit types; from bf16 the payload and sign are kept.
/// They are integer code for any compiler. CUDA tiles convert with the GPU's instructions instead.
///
/// For a storage type of your own, specialise `scalar_traits` with the same members.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

inline constexpr std::uint32_t float_sign = 0x80000000U;
inline constexpr std::uint32_t float_infinity = 0x7f800000U;
inline constexpr std::uint32_t float_nan = 0x7fffffffU;
inline constexpr int float_mantissa_bits = 23;
inline constexpr int float_exponent_bias = 127;

/// Divides by 2^shift, 0 < shift < 32, rounding to the nearest and ties to the even quotient.
TESSERA_FN constexpr std::uint32_t shift_right_to_even(std::uint32_t value, int shift) {
  std::uint32_t const below_half = (1U << (shift - 1)) - 1U;
  return (value + below_half + ((value >> shift) & 1U)) >> shift;
}

/// Rounds a finite float without its sign (given by its bits) to a narrower IEEE-like format, as if that had no
/// largest exponent.
template <int MantissaBits, int Bias>
TESSERA_FN constexpr std::uint32_t round_magnitude(std::uint32_t magnitude) {
  constexpr int dropped = float_mantissa_bits - MantissaBits;
  constexpr std::uint32_t rebias = static_cast<std::uint32_t>(float_exponent_bias - Bias) << float_mantissa_bits;
  constexpr std::uint32_t implicit_one = 1U << float_mantissa_bits;
  if (magnitude >= rebias + implicit_one) {  // normal in the narrow format
    return shift_right_to_even(magnitude - rebias, dropped);
  }
  int const exponent = static_cast<int>(magnitude >> float_mantissa_bits);
  int const shift = dropped + 1 + float_exponent_bias - Bias - exponent;
  if (shift > float_mantissa_bits + 1) {  // below half of the smallest subnormal
    return 0;
  }
  return shift_right_to_even((magnitude & (implicit_one - 1U)) | implicit_one, shift);
}

/// The bits of a narrow format for `value`: `limit` for every value that is too large, `nan` for every NaN.
template <int ExponentBits, int MantissaBits, int Bias>
TESSERA_FN constexpr std::uint32_t encode_float(float value, std::uint32_t limit, std::uint32_t nan) {
  std::uint32_t const pattern = bit_cast<std::uint32_t>(value);
  std::uint32_t const magnitude = pattern & ~float_sign;
  if (magnitude > float_infinity) {
    return nan;
  }
  std::uint32_t const sign = (pattern & float_sign) >> (31 - ExponentBits - MantissaBits);
  return sign | min(round_magnitude<MantissaBits, Bias>(magnitude), limit);
}

/// The float of a finite narrow pattern without its sign. It is exact, and neither reads nor makes a subnormal float,
/// so that it holds where subnormal floats are flushed to zero.
template <int MantissaBits, int Bias>
TESSERA_FN constexpr float decode_magnitude(std::uint32_t magnitude) {
  constexpr std::uint32_t rebias = static_cast<std::uint32_t>(float_exponent_bias - Bias) << float_mantissa_bits;
  constexpr std::uint32_t smallest_normal = rebias + (1U << float_mantissa_bits);
  std::uint32_t const moved = magnitude << (float_mantissa_bits - MantissaBits);
  if ((magnitude >> MantissaBits) != 0) {
    return bit_cast<float>(moved + rebias);
  }
  return bit_cast<float>(moved + smallest_normal) - bit_cast<float>(smallest_normal);
}

/// The float of a narrow pattern. Magnitudes from `first_nan` on are NaN; first_nan - 1 is infinity if the format has
/// one.
template <int ExponentBits, int MantissaBits, int Bias, bool HasInfinity>
TESSERA_FN constexpr float decode_float(std::uint32_t pattern, std::uint32_t first_nan) {
  constexpr int magnitude_bits = ExponentBits + MantissaBits;
  std::uint32_t const magnitude = pattern & ((1U << magnitude_bits) - 1U);
  if (magnitude >= first_nan) {
    return bit_cast<float>(float_nan);
  }
  std::uint32_t const sign = (pattern >> magnitude_bits) << 31;
  if (HasInfinity && magnitude + 1U == first_nan) {
    return bit_cast<float>(sign | float_infinity);
  }
  return bit_cast<float>(sign | bit_cast<std::uint32_t>(decode_magnitude<MantissaBits, Bias>(magnitude)));
}

/// What formats of 8 and 16 bits with a smaller exponent than a float's have in common. The one NaN that is made has
/// all bits below the sign. Without infinities it is the only NaN.
template <class T, class Bits, int ExponentBits, bool HasInfinity>
struct narrow_float_traits {
  using bits_type = Bits;
  using compute_type = float;
  static constexpr int bits = 8 * static_cast<int>(sizeof(Bits));
  static constexpr int exponent_bits = ExponentBits;
  static constexpr int mantissa_bits = bits - 1 - ExponentBits;
  static constexpr int exponent_bias = (1 << (ExponentBits - 1)) - 1;
  static constexpr bool has_infinity = HasInfinity;
  static constexpr bits_type nan_bits = (1U << (bits - 1)) - 1U;

 private:
  static constexpr std::uint32_t infinity_bits = ((1U << ExponentBits) - 1U) << mantissa_bits;
  static constexpr std::uint32_t first_nan = HasInfinity ? infinity_bits + 1U : nan_bits;

 public:
  static constexpr bits_type largest_bits = first_nan - (HasInfinity ? 2U : 1U);

  TESSERA_FN static constexpr bits_type to_bits(T value) { return value.bits; }
  TESSERA_FN static constexpr T from_bits(bits_type pattern) { return {pattern}; }
  TESSERA_FN static constexpr float load(T value) {
    return decode_float<ExponentBits, mantissa_bits, exponent_bias, HasInfinity>(value.bits, first_nan);
  }
  TESSERA_FN static constexpr T store(float value) {
    constexpr std::uint32_t limit = bits == 8 ? largest_bits : infinity_bits;  // 8 bits saturate
    return {static_cast<bits_type>(encode_float<ExponentBits, mantissa_bits, exponent_bias>(value, limit, nan_bits))};
  }
};

}  // namespace detail

/// Describes a storage type. A user's type provides the members of the specialisations below.
template <class T>
struct scalar_traits;

/// fp32, which computes in itself: load() and store() change nothing.
template <>
struct scalar_traits<float> {
  using bits_type = std::uint32_t;
  using compute_type = float;
  static constexpr int bits = 32;
  static constexpr int exponent_bits = 8;
  static constexpr int mantissa_bits = 23;
  static constexpr int exponent_bias = 127;
  static constexpr bool has_infinity = true;
  static constexpr bits_type largest_bits = 0x7f7fffffU;    ///< the bits of the largest finite value
  static constexpr bits_type nan_bits = detail::float_nan;  ///< the bits of the NaN that `store` makes

  TESSERA_FN static constexpr char const* name() { return "fp32"; }
  TESSERA_FN static constexpr bits_type to_bits(float value) { return bit_cast<bits_type>(value); }
  TESSERA_FN static constexpr float from_bits(bits_type pattern) { return bit_cast<float>(pattern); }
  TESSERA_FN static constexpr float load(float value) { return value; }
  TESSERA_FN static constexpr float store(float value) { return value; }
};

/// bf16: the upper half of an fp32.
template <>
struct scalar_traits<bfloat16> {
  using bits_type = std::uint16_t;
  using compute_type = float;
  static constexpr int bits = 16;
  static constexpr int exponent_bits = 8;
  static constexpr int mantissa_bits = 7;
  static constexpr int exponent_bias = 127;
  static constexpr bool has_infinity = true;
  static constexpr bits_type largest_bits = 0x7f7fU;
  static constexpr bits_type nan_bits = 0x7fffU;

  TESSERA_FN static constexpr char const* name() { return "bf16"; }
  TESSERA_FN static constexpr bits_type to_bits(bfloat16 value) { return value.bits; }
  TESSERA_FN static constexpr bfloat16 from_bits(bits_type pattern) { return {pattern}; }
  TESSERA_FN static constexpr float load(bfloat16 value) { return bit_cast<float>(std::uint32_t{value.bits} << 16); }
  TESSERA_FN static constexpr bfloat16 store(float value) {
    std::uint32_t const pattern = bit_cast<std::uint32_t>(value);
    if ((pattern & ~detail::float_sign) > detail::float_infinity) {
      return {nan_bits};
    }
    return {static_cast<bits_type>(detail::shift_right_to_even(pattern, 16))};  // the carry may reach infinity
  }
};

/// fp16, as IEEE 754 has it.
template <>
struct scalar_traits<float16> : detail::narrow_float_traits<float16, std::uint16_t, 5, true> {
  TESSERA_FN static constexpr char const* name() { return "fp16"; }
};

/// fp8 with 3 bits of mantissa: no infinities, one NaN, up to 448.
template <>
struct scalar_traits<float8_e4m3> : detail::narrow_float_traits<float8_e4m3, std::uint8_t, 4, false> {
  TESSERA_FN static constexpr char const* name() { return "fp8_e4m3"; }
};

/// fp8 with 2 bits of mantissa: infinities and NaNs as in fp16, up to 57344.
template <>
struct scalar_traits<float8_e5m2> : detail::narrow_float_traits<float8_e5m2, std::uint8_t, 5, true> {
  TESSERA_FN static constexpr char const* name() { return "fp8_e5m2"; }
};

namespace detail {

/// The types that load and store take. The public concept, Scalar, is in concepts/scalar.hpp, which includes this
/// header.
template <class T>
concept Stored = requires {
  typename scalar_traits<T>::compute_type;
  typename scalar_traits<T>::bits_type;
};

}  // namespace detail

/// Whether T is a floating type of 16 bits, as tensor cores multiply: bfloat16 or float16.
template <class T>
inline constexpr bool is_16_bit_float = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

/// The value in the compute type, exactly.
template <detail::Stored T>
TESSERA_FN constexpr typename scalar_traits<T>::compute_type load(T value) {
  return scalar_traits<T>::load(value);
}

/// The nearest value of the storage type, ties to the even one: `store<bfloat16>(x)`.
template <detail::Stored T>
TESSERA_FN constexpr T store(typename scalar_traits<T>::compute_type value) {
  return scalar_traits<T>::store(value);
}

/// The stored pattern of a value, and the value of a pattern, without any conversion.
template <detail::Stored T>
TESSERA_FN constexpr typename scalar_traits<T>::bits_type to_bits(T value) {
  return scalar_traits<T>::to_bits(value);
}

template <detail::Stored T>
TESSERA_FN constexpr T from_bits(typename scalar_traits<T>::bits_type pattern) {
  return scalar_traits<T>::from_bits(pattern);
}

}  // namespace v0
}  // namespace tessera
