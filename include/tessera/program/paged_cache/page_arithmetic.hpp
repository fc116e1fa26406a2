// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The arithmetic behind the bytes of a page (program/paged_cache/page_format.hpp), with the same bits on every
/// executor.
///
/// All arithmetic is in fp32, each operation rounded once, with multiply-adds where it says fma. `e` is a channel of
/// the merged vector:
///
///     e = fma(second weight, b, first weight * a)   a, b: of the two layers; for one layer b = 0
///     |e'|^2 of a head's part of a vector           e': e from its codes
///     length factor f = sqrt(|e|^2 / |e'|^2)        restored vectors keep their lengths; |e|^2: measure_pages.hpp
///     code of t = floor(clamp(t))                   between origin and origin + highest; less the origin
///
/// highest = 2^bits - 1. The origin of codes, 2^(bits + 3), is a float from which on whole numbers of that many bits
/// are a field of its bits: bits 16 to 19 for 4-bit codes. Half a code is added before the fraction is cut off, which
/// rounds to the nearest.
///
/// Keys, of a channel, over the tokens of the page that are not retained: low, high of fp16(e), no zero has a sign;
///     scale = fp16((high - low) / highest), minimum = low, r = 1 / scale, or 0
///     code of fma(e, r, fma(-minimum, r, origin + 1/2)), norm = fp16(length * f)
///     e' = fma(origin + code, scale, fma(-origin, scale, minimum))
///     |e'|^2: pair_sum of eights; of an eight the sum of two fours: fma(e', e', .), channel after channel
/// Values, of a group of n channels of a token: low, high of e, no zero has a sign;
///     width = max(high - low, largest magnitude * (2^-10 * highest), 2^-120), r = 1 / width * highest,
///     step = width * (1 / highest), ratio = fp16(low * r), code of fma(e, r, (origin + 1/2) - ratio)
///     e' = step * (code + ratio), scale = fp16(length * f * step * 2^(bits - 1))
///     |e'|^2: pair_sum of groups' step * step * fma(ratio, fma(n, ratio, 2 * sum of codes), sum of codes' squares)
///
/// Steps of values are so wide that ratios are at most 1024 and clamp() does nothing. fp16 rounds to nearest, ties to
/// even, and saturates at 65504.
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

/// Adds up `count` parts, at most 32: first neighbours, then neighbouring sums, and so on, with zeros up to the next
/// power of two. `part(i)` is part i, `merge(state, other)` adds a state.
template <class State, class Part, class Merge>
TESSERA_FN State pair_sum(int count, State zero, Part const& part, Merge const& merge) {
  constexpr int most = 32;
  State parts[most];
  for (int i = 0; i < most; ++i) {
    parts[i] = i < count ? part(i) : zero;
  }
  for (int distance = 1; distance < count; distance *= 2) {
    for (int i = 0; i < count; i += 2 * distance) {
      merge(parts[i], parts[i + distance]);
    }
  }
  return parts[0];
}

/// The first of four neighbouring channels. Sixteen channels are two eights, each of which has four channels of the
/// lower half of the sixteen and four of the upper; so the words of a page have codes of one eight only.
[[nodiscard]] TESSERA_FN constexpr int first_of_four(int eight, int four) {
  return eight / 2 * 16 + four * 8 + eight % 2 * 4;
}

/// The range with 0 for -0: among zeros with both signs, either sign may come first.
TESSERA_FN constexpr interval<float> without_signed_zeros(interval<float> range) {
  return {range.minimum + 0.0F, range.maximum + 0.0F};
}

/// Rounds to fp16; larger numbers become the largest finite one, with their sign.
TESSERA_FN constexpr float16 saturated_half(float value) {
  constexpr float largest = 65504.0F;
  return store<float16>(is_nan(value) ? value : clamp(value, -largest, largest));
}

/// The largest code of so many bits.
TESSERA_FN constexpr int highest_code(int bits) {
  return (1 << bits) - 1;
}

/// The float of which codes are a part of the bits; see above.
TESSERA_FN constexpr float code_origin(int bits) {
  return static_cast<float>(8 << bits);
}

/// The code of a number that counts from the origin. Numbers beyond a bound get the code of the bound, NaN gets 0.
TESSERA_FN constexpr std::uint32_t code_of(float number, int bits) {
  float const first = code_origin(bits);
  float const inside = is_nan(number) ? first : clamp(number, first, first + static_cast<float>(highest_code(bits)));
  return static_cast<std::uint32_t>(inside - first);
}

/// The scale and minimum by which the keys of a channel are coded.
struct key_channel {
  float16 scale;    ///< distance from code to code
  float16 minimum;  ///< value of code 0

  /// The parameters for the range of a channel over a page's tokens, for numbers of fp16; zeros where all tokens are
  /// retained.
  TESSERA_FN static constexpr key_channel fit(interval<float> found, int bits) {
    interval<float> const range = without_signed_zeros(found);
    if (!(range.minimum <= range.maximum)) {  // all tokens are retained
      return {float16{0}, float16{0}};
    }
    return {saturated_half((range.maximum - range.minimum) / static_cast<float>(highest_code(bits))),
            saturated_half(range.minimum)};
  }
  /// The factor that turns a distance from code 0 into codes; 0 for a constant channel.
  [[nodiscard]] TESSERA_FN constexpr float reciprocal() const { return reciprocal_of(load(scale)); }
  /// The number that is added after multiplying by reciprocal().
  [[nodiscard]] TESSERA_FN float offset(int bits) const {
    return multiply_add(-load(minimum), reciprocal(), code_origin(bits) + 0.5F);
  }
  /// The code of a value, 0 to highest_code(bits).
  [[nodiscard]] TESSERA_FN std::uint32_t encode(float value, int bits) const {
    return code_of(multiply_add(value, reciprocal(), offset(bits)), bits);
  }
  /// The addend of codes that count from the origin: the minimum less the origin's multiple of the scale.
  [[nodiscard]] TESSERA_FN float base(int bits) const {
    return multiply_add(-code_origin(bits), load(scale), load(minimum));
  }
  /// The value of a code; `base` is base(bits).
  [[nodiscard]] TESSERA_FN float decode_from_origin(std::uint32_t code, float base_of_bits, int bits) const {
    return multiply_add(code_origin(bits) + static_cast<float>(code), load(scale), base_of_bits);
  }
  /// The value of a code.
  [[nodiscard]] TESSERA_FN float decode(std::uint32_t code) const {
    return multiply_add(static_cast<float>(code), load(scale), load(minimum));
  }
};

/// The step and ratio by which the values of a group of channels of a token are coded.
struct value_group {
  float reciprocal;  ///< 1 / step
  float step;        ///< distance from code to code
  float16 ratio;     ///< the smallest value in steps

  /// The parameters for the range of a group; steps are at least 2^-10 of the largest magnitude.
  TESSERA_FN static constexpr value_group fit(interval<float> found, int bits) {
    interval<float> const range = without_signed_zeros(found);
    float const width = width_of(range, bits);
    float const reciprocal = 1.0F / width * static_cast<float>(highest_code(bits));
    return {reciprocal, width * share(bits), saturated_half(range.minimum * reciprocal)};
  }
  /// The width of all codes together.
  TESSERA_FN static constexpr float width_of(interval<float> range, int bits) {
    constexpr float least = 0x1p-120F;
    float const magnitude = max(absolute(range.minimum), absolute(range.maximum));
    return max(max(range.maximum - range.minimum, magnitude * (0x1p-10F * static_cast<float>(highest_code(bits)))),
               least);
  }
  /// 1 / highest.
  TESSERA_FN static constexpr float share(int bits) { return 1.0F / static_cast<float>(highest_code(bits)); }

  /// The number that is added to multiples of `reciprocal`, to count in codes from the origin.
  TESSERA_FN static float offset(float ratio, int bits) { return (code_origin(bits) + 0.5F) - ratio; }
  /// The code of a value, 0 to highest_code(bits).
  [[nodiscard]] TESSERA_FN std::uint32_t encode(float value, int bits) const {
    return code_of(multiply_add(value, reciprocal, offset(load(ratio), bits)), bits);
  }
  /// |e'|^2 of the group's channels.
  [[nodiscard]] TESSERA_FN float decoded_square(int channels, int sum_of_codes, int sum_of_squares) const {
    return decoded_square(step, load(ratio), channels, {sum_of_codes, sum_of_squares});
  }
  /// Sums over the codes of a group.
  struct code_sums {
    int first;    ///< the sum of the codes
    int squares;  ///< the sum of their squares
  };
  /// |e'|^2 of a group. The addend is 0, so that no compiler contracts the product with a later addition.
  TESSERA_FN static float decoded_square(float step, float ratio, int channels, code_sums sums) {
    float const twice = multiply_add(static_cast<float>(channels), ratio, static_cast<float>(2 * sums.first));
    return multiply_add(step * step, multiply_add(ratio, twice, static_cast<float>(sums.squares)), 0.0F);
  }
  /// The scale that is stored for a layer; `length` is that of its vector times the length factor.
  [[nodiscard]] TESSERA_FN constexpr float16 scale(float length, int bits) const {
    return saturated_half(length * step * static_cast<float>(1 << (bits - 1)));
  }
};

/// The factor of stored lengths with which restored vectors have their lengths.
TESSERA_FN inline float length_factor(float square, float decoded_square) {
  return decoded_square > 0.0F ? sqrt(square / decoded_square) : 0.0F;
}

/// A channel of a restored key: that of its direction times the stored length.
TESSERA_FN inline float restored_key(std::uint32_t code, key_channel const& channel, float16 norm) {
  return load(norm) * channel.decode(code);
}

/// A channel of a restored value, from the parameters of its group.
TESSERA_FN inline float restored_value(std::uint32_t code, float16 scale, float16 ratio, int bits) {
  return load(scale) / static_cast<float>(1 << (bits - 1)) * (static_cast<float>(code) + load(ratio));
}

}  // namespace v0
}  // namespace tessera
