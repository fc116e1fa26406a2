// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The arithmetic behind the bytes of a page (program/cache_page.hpp), the same on every backend.
///
/// All in fp32, each operation rounded once, multiply-adds where it says fma. `e` is a channel of the merged vector:
///
///     e = fma(second weight, b, first weight * a)   a, b: of the two layers; for one layer b = 0
///     |e'|^2 of a head's part of a vector           e': e from its codes; row_sum of what octets have
///     length factor f = sqrt(|e|^2 / |e'|^2)        restored vectors keep their lengths; |e|^2: measure_pages.hpp
///     code of t = nearest(highest * saturate(t))    highest = 2^bits - 1; ties to even; saturate: 0 to 1, NaN is 0
///
/// Keys, of a channel, over the tokens of the page that are not retained: low, high, of which no zero has a sign;
///     scale = fp16((high - low) / highest), minimum = fp16(low), r = 1 / (scale * highest)
///     code of fma(e, r, -(minimum * r)), e' = fma(code, scale, minimum), norm = fp16(length * f)
///     |e'|^2 of an octet: fma(e', e', .), channel after channel
/// Values, of a group of channels of a token: low, high, likewise;
///     width = max(high - low, largest magnitude * (2^-10 * highest), 2^-120), r = 1 / width,
///     step = width * (1 / highest), ratio = fp16(low * r * highest), code of fma(e, r, -(ratio * (1 / highest))),
///     e' = step * (code + ratio), scale = fp16(length * f * step * 2^(bits - 1))
///     |e'|^2 of an octet: step * step * fma(ratio, fma(8, ratio, 2 * sum of codes), sum of codes' squares)
///
/// fp16: nearest, ties to even; saturates at 65504.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/reduce/minimum_maximum.hpp>

namespace tessera {
inline namespace v0 {

/// The order in which anything is added up over the channels of a head: octets, which are eight neighbours, and then
/// these sums in pairs at half their number apart, again and again, with zeros to the next power of two.
/// `octet(channel)` is the sum of an octet that begins there, `merge(state, other)` adds a state.
template <class State, class Octet, class Merge>
TESSERA_FN State row_sum(int channels, State zero, Octet const& octet, Merge const& merge) {
  constexpr int most = 32;
  State parts[most];
  for (int i = 0; i < most; ++i) {
    parts[i] = 8 * i < channels ? octet(8 * i) : zero;
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

/// The largest code of so many bits.
TESSERA_FN constexpr int highest_code(int bits) {
  return (1 << bits) - 1;
}

/// The code of a number from 0 to 1, as a float. What is beyond counts as the bound, NaN as 0.
TESSERA_FN inline float nearest_code_of(float part, int bits) {
  constexpr float integers_only = 12582912.0F;  // 1.5 * 2^23: floats from here on have no fraction
  const float inside = is_nan(part) ? 0.0F : clamp(part, 0.0F, 1.0F);
  return multiply_add(inside, static_cast<float>(highest_code(bits)), integers_only) - integers_only;
}

/// How the keys of a channel become codes.
struct key_channel {
  float16 scale;    ///< distance of codes
  float16 minimum;  ///< value of code 0

  /// For the range of a channel over a page's tokens; zeros where all are retained.
  TESSERA_FN static constexpr key_channel fit(interval<float> found, int bits) {
    const interval<float> range = without_signed_zeros(found);
    if (!(range.minimum <= range.maximum)) {  // all retained
      return {float16{0}, float16{0}};
    }
    return {saturated_half((range.maximum - range.minimum) / static_cast<float>(highest_code(bits))),
            saturated_half(range.minimum)};
  }
  /// What the distance from code 0 is multiplied by to lie between 0 and 1; 0 of a constant channel.
  [[nodiscard]] TESSERA_FN constexpr float reciprocal(int bits) const {
    return reciprocal_of(load(scale) * static_cast<float>(highest_code(bits)));
  }
  /// The code of a value, 0 to highest_code(bits).
  [[nodiscard]] TESSERA_FN std::uint32_t encode(float value, int bits) const {
    const float by = reciprocal(bits);
    return static_cast<std::uint32_t>(nearest_code_of(multiply_add(value, by, -(load(minimum) * by)), bits));
  }
  /// The value of a code.
  [[nodiscard]] TESSERA_FN float decode(std::uint32_t code) const {
    return multiply_add(static_cast<float>(code), load(scale), load(minimum));
  }
};

/// How the values of a group of channels of a token become codes.
struct value_group {
  float reciprocal;  ///< of the width of the range
  float step;        ///< distance of codes
  float16 ratio;     ///< the smallest value in steps

  /// For the range of a group; steps are at least 2^-10 of the largest magnitude.
  TESSERA_FN static constexpr value_group fit(interval<float> found, int bits) {
    const interval<float> range = without_signed_zeros(found);
    const float width = width_of(range, bits);
    const float reciprocal = 1.0F / width;
    return {reciprocal, width * share(bits),
            saturated_half(range.minimum * reciprocal * static_cast<float>(highest_code(bits)))};
  }
  /// As wide as all codes together.
  TESSERA_FN static constexpr float width_of(interval<float> range, int bits) {
    constexpr float least = 0x1p-120F;
    const float magnitude = max(absolute(range.minimum), absolute(range.maximum));
    return max(max(range.maximum - range.minimum, magnitude * (0x1p-10F * static_cast<float>(highest_code(bits)))),
               least);
  }
  /// 1 / highest.
  TESSERA_FN static constexpr float share(int bits) { return 1.0F / static_cast<float>(highest_code(bits)); }

  /// The code of a value, 0 to highest_code(bits).
  [[nodiscard]] TESSERA_FN std::uint32_t encode(float value, int bits) const {
    const float part = multiply_add(value, reciprocal, -(load(ratio) * share(bits)));
    return static_cast<std::uint32_t>(nearest_code_of(part, bits));
  }
  /// |e'|^2 of eight channels.
  [[nodiscard]] TESSERA_FN float decoded_square(int sum_of_codes, int sum_of_squares) const {
    return decoded_square(step, load(ratio), sum_of_codes, sum_of_squares);
  }
  /// The same. An addend of 0, so that nobody contracts the product with what it is added to.
  TESSERA_FN static float decoded_square(float step, float ratio, int sum_of_codes, int sum_of_squares) {
    const float in_steps = multiply_add(ratio, multiply_add(8.0F, ratio, static_cast<float>(2 * sum_of_codes)),
                                        static_cast<float>(sum_of_squares));
    return multiply_add(step * step, in_steps, 0.0F);
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

/// A channel of a key: its direction's times the stored length.
TESSERA_FN inline float restored_key(std::uint32_t code, key_channel const& channel, float16 norm) {
  return load(norm) * channel.decode(code);
}

/// A channel of a value, from what is stored for its group.
TESSERA_FN inline float restored_value(std::uint32_t code, float16 scale, float16 ratio, int bits) {
  return load(scale) / static_cast<float>(1 << (bits - 1)) * (static_cast<float>(code) + load(ratio));
}

}  // namespace v0
}  // namespace tessera
