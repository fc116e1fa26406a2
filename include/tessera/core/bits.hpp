// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Integers and bit patterns: the parts of `<bit>` and `<algorithm>` that both host and device need.
///
///     auto pattern = tessera::bit_cast<std::uint32_t>(1.0F);                 // 0x3f800000
///     int  lowest  = tessera::count_trailing_zeros(pattern);                 // 23
///     auto padded  = tessera::align_up(std::int64_t{1000}, std::int64_t{256});  // 1024
///     auto blocks  = tessera::divide_up(1000, 256);                          // 4
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

template <class T>
concept Integer = std::is_integral_v<T>;

template <class T>
concept UnsignedInteger = std::is_integral_v<T> && std::is_unsigned_v<T> && sizeof(T) <= 8;

#if defined(__CUDACC_RTC__)  // NVRTC has none of the built-in functions below
template <class Word>
TESSERA_FN constexpr int ones(Word word) {
  if (__builtin_is_constant_evaluated()) {
    int count = 0;
    for (; word != 0; word &= word - 1) {
      ++count;
    }
    return count;
  }
  return sizeof(Word) == 4 ? __popc(static_cast<unsigned>(word)) : __popcll(word);
}
template <class Word>
TESSERA_FN constexpr int zeros_above(Word word) {
  if (__builtin_is_constant_evaluated()) {
    int count = 0;
    for (; (word >> (8 * sizeof(Word) - 1)) == 0; word <<= 1) {
      ++count;
    }
    return count;
  }
  return sizeof(Word) == 4 ? __clz(static_cast<int>(word)) : __clzll(static_cast<long long>(word));
}
#else
TESSERA_FN constexpr int ones(unsigned word) {
  return __builtin_popcount(word);
}
TESSERA_FN constexpr int ones(unsigned long long word) {
  return __builtin_popcountll(word);
}
/// The number of leading zero bits of a word that is not zero.
TESSERA_FN constexpr int zeros_above(unsigned word) {
  return __builtin_clz(word);
}
TESSERA_FN constexpr int zeros_above(unsigned long long word) {
  return __builtin_clzll(word);
}
#endif

}  // namespace detail

/// The bytes of `from` read as a `To`.
template <class To, class From>
TESSERA_FN constexpr To bit_cast(From const& from) {
  static_assert(sizeof(To) == sizeof(From), "tessera: bit_cast<To>(from) needs two types of one size");
  static_assert(std::is_trivially_copyable_v<To> && std::is_trivially_copyable_v<From>,
                "tessera: bit_cast<To>(from) needs trivially copyable types");
  return __builtin_bit_cast(To, from);
}

/// The number of bits that are set.
template <detail::UnsignedInteger Unsigned>
TESSERA_FN constexpr int popcount(Unsigned value) {
  if constexpr (sizeof(Unsigned) <= 4) {
    return detail::ones(static_cast<unsigned>(value));
  } else {
    return detail::ones(static_cast<unsigned long long>(value));
  }
}

/// The number of zero bits above the highest one; the width for zero.
template <detail::UnsignedInteger Unsigned>
TESSERA_FN constexpr int count_leading_zeros(Unsigned value) {
  constexpr int width = static_cast<int>(8 * sizeof(Unsigned));
  if (value == 0) {
    return width;
  }
  if constexpr (sizeof(Unsigned) <= 4) {
    return detail::zeros_above(static_cast<unsigned>(value)) - (32 - width);
  } else {
    return detail::zeros_above(static_cast<unsigned long long>(value));
  }
}

/// The number of zero bits below the lowest one; the width for zero.
template <detail::UnsignedInteger Unsigned>
TESSERA_FN constexpr int count_trailing_zeros(Unsigned value) {
  return popcount(static_cast<Unsigned>(~value & (value - 1)));  // the bits below the lowest one; all of them for zero
}

/// Whether exactly one bit is set; false for 0.
template <detail::Integer T>
TESSERA_FN constexpr bool is_power_of_two(T value) {
  return value > 0 && (value & (value - 1)) == 0;
}

/// The smallest multiple of `step` that is at least `value`. `value` is not negative, `step` is positive, and the
/// result must fit the type.
template <detail::Integer T>
TESSERA_FN constexpr T align_up(T value, std::type_identity_t<T> step) {
  T const rest = static_cast<T>(value % step);
  return rest == 0 ? value : static_cast<T>(value + (step - rest));
}

/// The number of parts of `size` that cover `value`. `value` is not negative and `size` is positive. The
/// computation never overflows.
template <detail::Integer T>
TESSERA_FN constexpr T divide_up(T value, std::type_identity_t<T> size) {
  return static_cast<T>(value / size + (value % size != 0 ? 1 : 0));
}

/// The upper half of the 64-bit product.
TESSERA_FN constexpr std::uint32_t multiply_high(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>((std::uint64_t{a} * b) >> 32);
}

/// The largest `n` with 2^n <= value; `value` is not zero.
template <detail::UnsignedInteger Unsigned>
TESSERA_FN constexpr int log2_floor(Unsigned value) {
  return static_cast<int>(8 * sizeof(Unsigned)) - 1 - count_leading_zeros(value);
}

/// The smallest `n` with 2^n >= value; `value` is not zero.
template <detail::UnsignedInteger Unsigned>
TESSERA_FN constexpr int log2_ceil(Unsigned value) {
  return value == 1 ? 0 : log2_floor(static_cast<Unsigned>(value - 1)) + 1;
}

/// The smaller of two values of one type; the first if they are equal, or if either is a NaN. For floats that may be
/// NaN see `minimum` in core/math.hpp.
template <class T>
TESSERA_FN constexpr T min(T a, std::type_identity_t<T> b) {
  return b < a ? b : a;
}

/// The larger of two values of one type; the first if they are equal, or if either is a NaN.
template <class T>
TESSERA_FN constexpr T max(T a, std::type_identity_t<T> b) {
  return a < b ? b : a;
}

/// `value` limited to [low, high]; `low` is not above `high`.
template <class T>
TESSERA_FN constexpr T clamp(T value, std::type_identity_t<T> low, std::type_identity_t<T> high) {
  return value < low ? low : (high < value ? high : value);
}

}  // namespace v0
}  // namespace tessera
