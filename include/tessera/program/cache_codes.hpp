// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The arithmetic behind the bytes of a page (program/cache_page.hpp), the same on every backend.
///
/// All in fp32, each operation rounded once, multiply-adds where it says fma. `e` is a channel of the merged vector:
///
///     e = fma(second weight, b, first weight * a)         a, b: of the two layers; for one layer b = 0
///     |e'|^2 of a head's part of a vector                 e': e from its codes; row_sum of fma(e', e', .)
///     length factor f = sqrt(|e|^2 / |e'|^2)              restored vectors keep their lengths; |e|^2: measure_pages.hpp
///
/// Keys, of a channel, over the tokens of the page that are not retained: low, high, of which no zero has a sign;
///     scale = fp16((high - low) / highest), minimum = fp16(low), code = nearest((e - minimum) * (1 / scale))
///     e' = fma(code, scale, minimum), norm = fp16(length * f)
/// Values, of a group of channels of a token: low, high, likewise;
///     s = max((high - low) / highest, largest magnitude * 2^-10, 2^-126), ratio = fp16(low * (1 / s)),
///     code = nearest(fma(e, 1 / s, -ratio)), e' = s * (code + ratio), scale = fp16(length * f * s * 2^(bits - 1))
///
/// nearest: ties to even, from 0 to highest = 2^bits - 1. fp16: nearest, ties to even; saturates at 65504.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/quantize/nearest_code.hpp>
#include <tessera/reduce/minimum_maximum.hpp>

namespace tessera {
inline namespace v0 {

/// The order in which anything is added up over the channels of a head: eight neighbours in order, and then these sums
/// in pairs at half their number apart, again and again, with zeros to the next power of two. `take(state, channel)`
/// adds a channel, `merge(state, other)` a state.
template <class State, class Take, class Merge>
TESSERA_FN State row_sum(int channels, State zero, Take const& take, Merge const& merge) {
  constexpr int most = 32;
  State parts[most];
  for (int i = 0; i < most; ++i) {
    parts[i] = zero;
    for (int channel = 8 * i; channel < 8 * i + 8 && channel < channels; ++channel) {
      take(parts[i], channel);
    }
  }
  for (int distance = 1 << (log2_ceil(static_cast<unsigned>(channels) / 8U)) >> 1; distance > 0; distance /= 2) {
    for (int i = 0; i < distance; ++i) {
      merge(parts[i], parts[i + distance]);
    }
  }
  return parts[0];
}

/// Of zeros with both signs either may come first: neither bound is -0.
TESSERA_FN constexpr interval<float> without_signed_zeros(interval<float> range) {
  return {range.minimum + 0.0F, range.maximum + 0.0F};
}

/// Rounds to fp16; what is too large becomes the largest finite number, with its sign.
TESSERA_FN constexpr float16 saturated_half(float value) {
  constexpr float largest = 65504.0F;
  return store<float16>(is_nan(value) ? value : clamp(value, -largest, largest));
}

TESSERA_FN constexpr int highest_code(int bits) {
  return (1 << bits) - 1;
}

/// How the keys of a channel become codes.
struct key_channel {
  float16 scale;
  float16 minimum;

  TESSERA_FN static constexpr key_channel fit(interval<float> found, int bits) {
    const interval<float> range = without_signed_zeros(found);
    if (!(range.minimum <= range.maximum)) {  // all retained
      return {float16{0}, float16{0}};
    }
    return {saturated_half((range.maximum - range.minimum) / static_cast<float>(highest_code(bits))),
            saturated_half(range.minimum)};
  }
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t encode(float value, int bits) const {
    const float steps = (value - load(minimum)) * reciprocal_of(load(scale));
    return static_cast<std::uint32_t>(nearest_code(steps, 0, highest_code(bits)));
  }
  [[nodiscard]] TESSERA_FN float decode(std::uint32_t code) const {
    return multiply_add(static_cast<float>(code), load(scale), load(minimum));
  }
};

/// How the values of a group of channels of a token become codes.
struct value_group {
  float step;
  float16 ratio;

  TESSERA_FN static constexpr value_group fit(interval<float> found, int bits) {
    const interval<float> range = without_signed_zeros(found);
    const float step = step_of(range, bits);
    return {step, saturated_half(range.minimum * (1.0F / step))};
  }
  TESSERA_FN static constexpr float step_of(interval<float> range, int bits) {
    const float magnitude = max(absolute(range.minimum), absolute(range.maximum));
    const float wide = (range.maximum - range.minimum) / static_cast<float>(highest_code(bits));
    return max(max(wide, magnitude * 0x1p-10F), smallest_code_scale);
  }
  [[nodiscard]] TESSERA_FN std::uint32_t encode(float value, int bits) const {
    const float steps = multiply_add(value, 1.0F / step, -load(ratio));
    return static_cast<std::uint32_t>(nearest_code(steps, 0, highest_code(bits)));
  }
  [[nodiscard]] TESSERA_FN constexpr float decode(std::uint32_t code) const {
    return step * (static_cast<float>(code) + load(ratio));
  }
  /// What is stored for a layer; `length` is that of its vector times the length factor.
  [[nodiscard]] TESSERA_FN constexpr float16 scale(float length, int bits) const {
    return saturated_half(length * step * static_cast<float>(1 << (bits - 1)));
  }
};

/// By what lengths are multiplied so that vectors keep them.
TESSERA_FN inline float length_factor(float square, float decoded_square) {
  return decoded_square > 0.0F ? sqrt(square / decoded_square) : 0.0F;
}

TESSERA_FN inline float restored_key(std::uint32_t code, key_channel const& channel, float16 norm) {
  return load(norm) * channel.decode(code);
}

TESSERA_FN inline float restored_value(std::uint32_t code, float16 scale, float16 ratio, int bits) {
  return load(scale) / static_cast<float>(1 << (bits - 1)) * (static_cast<float>(code) + load(ratio));
}

}  // namespace v0
}  // namespace tessera
