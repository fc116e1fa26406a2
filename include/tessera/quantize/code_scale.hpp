// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The scale of a group of quantized values, and its reciprocal, with the same bits on every executor.
///
///     auto const fitted = tessera::fit_scale(largest, 127.0F);          // largest magnitude -> code 127
///     int const code = tessera::nearest_code(value * fitted.reciprocal, -127, 127);
///     float const near = static_cast<float>(code) * fitted.scale;
///
/// Programs that encode many values multiply by the reciprocal; encode() of the quantizers divides. The two codes
/// differ by 1 where a value lies within rounding of the middle between two codes.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>

namespace tessera {
inline namespace v0 {

struct code_scale {
  float scale;       ///< the factor of a code
  float reciprocal;  ///< the factor of a value
};

/// The smallest scale: the smallest normal float, whose reciprocal is finite.
inline constexpr float smallest_code_scale = 0x1p-126F;

/// The factor of values whose group has this scale; 0 for a scale of 0 or NaN, so that codes are 0.
TESSERA_FN constexpr float reciprocal_of(float scale) {
  return scale > 0.0F ? 1.0F / scale : 0.0F;
}

/// The scale with which `largest`, a magnitude, gets the code `highest`. For a magnitude of 0, scale and reciprocal are
/// 0. A NaN stands for a group with a NaN or an infinity: then the scale is NaN and the reciprocal 0, so that all codes
/// are 0 and every result that they take part in is NaN.
TESSERA_FN constexpr code_scale fit_scale(float largest, float highest) {
  if (is_nan(largest) || largest == 0.0F) {
    return {largest, 0.0F};
  }
  float const scale = max(largest / highest, smallest_code_scale);
  return {scale, reciprocal_of(scale)};
}

}  // namespace v0
}  // namespace tessera
