// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Functions of floats that run on host and device.
///
///     constexpr float range = tessera::maximum(tessera::absolute(low), tessera::absolute(high));
///     int code = static_cast<int>(tessera::round_to_even(value / scale));
///     float weight = tessera::exp2(score - largest);
///
/// Bit-identical on host and device, and usable in constant expressions: `absolute`, `is_nan`, `is_finite`,
/// `round_to_even`, and, but for the sign of a zero, `minimum` and `maximum`. Bit-identical only: `multiply_add`, and
/// `sqrt` unless device code is compiled with -prec-sqrt=false. `exp`, `exp2`, `log` and `log2` are each platform's
/// own, within 2 units in the last place. These five are templates, so that under `using namespace tessera` a call is
/// not ambiguous where <math.h> has a function of floats by the same name, which is then called and does the same.
#pragma once

#include <concepts>
#include <cstdint>
#include <math.h>  // not <cmath>: the global names are those that nvcc has on both sides

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {

#if defined(__CUDACC_RTC__)  // NVRTC has no such built-in function
inline constexpr float infinity = bit_cast<float>(std::uint32_t{0x7f800000});
#else
inline constexpr float infinity = __builtin_huge_valf();  ///< the infinity of fp32, which converts exactly
#endif

/// Whether the value is a NaN. It looks at the bits, so that it holds under -ffast-math too.
TESSERA_FN constexpr bool is_nan(float value) {
  return (bit_cast<std::uint32_t>(value) & 0x7fffffffU) > 0x7f800000U;
}

/// Whether the value is neither infinite nor NaN.
TESSERA_FN constexpr bool is_finite(float value) {
  return (bit_cast<std::uint32_t>(value) & 0x7fffffffU) < 0x7f800000U;
}

/// The value without its sign; a zero or a NaN loses its sign too.
TESSERA_FN constexpr float absolute(float value) {
  return bit_cast<float>(bit_cast<std::uint32_t>(value) & 0x7fffffffU);
}

/// The smaller value. If one is a quiet NaN, the other one; if both are, a NaN. Of two zeros either may result, and of
/// a signalling NaN either operand.
TESSERA_FN constexpr float minimum(float a, float b) {
#if defined(__CUDACC__)  // devices have an instruction for it, C libraries a function to call
  if (!__builtin_is_constant_evaluated()) {
    return ::fminf(a, b);
  }
#endif
  return a <= b || is_nan(b) ? a : b;
}

/// The larger value. If one is a quiet NaN, the other one; if both are, a NaN. Of two zeros either may result, and of
/// a signalling NaN either operand.
TESSERA_FN constexpr float maximum(float a, float b) {
#if defined(__CUDACC__)  // devices have an instruction for it, C libraries a function to call
  if (!__builtin_is_constant_evaluated()) {
    return ::fmaxf(a, b);
  }
#endif
  return a >= b || is_nan(b) ? a : b;
}

/// The nearest integer, ties to the even one. The result keeps the value's sign, also where it is zero.
TESSERA_FN constexpr float round_to_even(float value) {
  if (__builtin_is_constant_evaluated()) {
    constexpr float integers_only = 8388608.0F;  // 2^23: floats from here on have no fraction
    if (is_nan(value) || absolute(value) >= integers_only) {
      return value;
    }
    float const rounded = (absolute(value) + integers_only) - integers_only;
    return bit_cast<float>(bit_cast<std::uint32_t>(rounded) | (bit_cast<std::uint32_t>(value) & 0x80000000U));
  }
  return ::rintf(value);
}

/// a * b + c with one rounding. Of `a * b + c` in source code, the device's compiler makes this and the host's does
/// not.
TESSERA_FN inline float multiply_add(float a, float b, float c) {
  return ::fmaf(a, b, c);
}

/// The square root, rounded to the nearest float.
template <std::same_as<float> Float>
TESSERA_FN inline float sqrt(Float value) {
  return ::sqrtf(value);
}

/// e^value, as the platform's library rounds it.
template <std::same_as<float> Float>
TESSERA_FN inline float exp(Float value) {
  return ::expf(value);
}

/// 2^value, as the platform's library rounds it.
template <std::same_as<float> Float>
TESSERA_FN inline float exp2(Float value) {
  return ::exp2f(value);
}

/// The natural logarithm: minus infinity at zero, NaN below.
template <std::same_as<float> Float>
TESSERA_FN inline float log(Float value) {
  return ::logf(value);
}

/// The logarithm to base 2, as the platform's library rounds it.
template <std::same_as<float> Float>
TESSERA_FN inline float log2(Float value) {
  return ::log2f(value);
}

}  // namespace v0
}  // namespace tessera
