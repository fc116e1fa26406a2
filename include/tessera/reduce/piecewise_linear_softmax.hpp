// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `piecewise_linear_softmax`: an online softmax whose weights are e4m3 codes, each of which takes one multiply-add and
/// no exponential.
///
///     using quantizer = tessera::float8_quantizer<tessera::float8_e4m3>;
///     tessera::piecewise_linear_softmax softmax;
///     auto state = softmax.identity();
///     total *= softmax.turn(state, largest_of(tile));            // as online_softmax
///     auto const [code, weight] = softmax.weigh<quantizer>(state, scale, sum, false);   // of the score scale * sum
///
/// The number that an e4m3 code stands for is piecewise linear in the code where its logarithm would be linear: code 8
/// e + m is 2^(e - 7) (1 + m / 8). So the code of 448 * 2^x, x at most 0, is nearly on the line of 8 codes to a power
/// of two that has code 126 at x = 0:
///
///     code = round(8 x + 126), at least 0
///
/// The number of such a code exceeds 448 * 2^x by the factor (1 + f) / 2^f / 1.0405, f being the fraction of the power
/// of two: between 0.961 and 1.020, 1.0002 in the mean. Attention divides by the sum of the codes' numbers, so only the
/// spread of that factor is left, 1.8 % rms beside the 2.6 % by which e4m3 rounds: 3.1 % in all, 8.4 % at most. Codes
/// below 8 are e4m3's denormal numbers, which are smaller than the line's: weights below 2^-15.8 of the tile's largest
/// become 0. Attention sinks exceed their neighbours by more than that, and are among a sequence's first keys. So in
/// its first tile weights have a second line, which follows e4m3 to 2^-16.8:
///
///     code = round(max(t, t / 2 + 4)),    t = 8 x + 126
///
/// The arithmetic is the same on every executor and in every program, but where sm_90a's adds terms to scores. Each
/// line is rounded once to fp32 (r: the reference, s: an integer of magnitude below 2^22 or any float):
///
///     scale < 1/32:  a = fma(8 scale, -1.5 * 2^23, 126 - 8 r)     t = fma(8 scale, 1.5 * 2^23 + s, a)
///     else:          x = scale * s                                t = fma(8, x - r, 126), rounded to an integer
///
///     in a sequence's first tile: t = max(t, fma(t, 1/2, 4))
///     code = t rounded to the nearest integer, ties to even, from 0 on
///
/// The first form is for the integer sums of tensor cores: adding 1.5 * 2^23 to their bits makes floats of them. Its
/// rounding of `a` moves t by at most 1/8 where scale is nearly 1/32, and moves all scores of one scale alike. With a
/// scale of 1, any score is taken unchanged. The second form is rounded before the second line, so that a program can
/// keep t in the place of s; that moves the second line by a quarter of a code at most, before it is rounded.
///
/// Zhang et al. (arXiv 2411.10958) round exponentials to e4m3; lines between powers of two are Schraudolph's ("A fast,
/// compact approximation of the exponential function", 1999).
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/attention_quantizer.hpp>
#include <tessera/concepts/reducer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/reduce/online_softmax.hpp>

namespace tessera {
inline namespace v0 {

/// As a Reducer it is online_softmax<float>: the states are the same, and merge in the same way.
struct piecewise_linear_softmax : online_softmax<float> {
  /// The softmax whose weigh() weigh_number() and weigh_small() are the numbers of.
  using numbers_of = piecewise_linear_softmax;
  static constexpr float codes_in_power_of_two = 8.0F;  ///< e4m3 has 3 mantissa bits
  static constexpr float top_code = 126.0F;             ///< the code of 448, the largest e4m3
  static constexpr float integer_magic = 12582912.0F;   ///< 1.5 * 2^23: added to an integer's bits it makes a float
  /// What a code's number is multiplied by to be its weight.
  static constexpr float weight_of_number = 1.0F / 448.0F;
  /// From this scale on, the reference is subtracted from the scaled score.
  static constexpr float most_scale = 1.0F / 32.0F;

  /// The code of the score `scale` * `sum`, which is in base 2 and not above the state's reference, and the number of
  /// the code divided by 448. Both are 0 for minus infinity, NaN for NaN and infinity. Q: the weights'
  /// quantizer, with e4m3 codes. is_first: the key is in its sequence's first tile.
  template <ScaleQuantizer Q>
  TESSERA_FN weighed_code<float8_e4m3, float> weigh(state_type const& state, float scale, float sum,
                                                    bool is_first) const {
    static_assert(std::is_same_v<typename Q::code_type, float8_e4m3>,
                  "tessera: piecewise_linear_softmax makes e4m3 codes; values must be float8_quantizer<float8_e4m3>");
    if (sum == -infinity) {
      return {float8_e4m3{0}, 0.0F};
    }
    float const line = position(scale, sum, state.reference);
    float const code = is_first ? low_line(line) : line;
    if (is_nan(code)) {
      return {float8_e4m3{0x7f}, code};
    }
    float8_e4m3 const nearest{static_cast<std::uint8_t>(round_to_even(maximum(code, 0.0F)))};
    return {nearest, load(nearest) * weight_of_number};
  }

  /// What weigh() gives where `scale` is below most_scale and `sum` finite or minus infinity, and the key not in its
  /// sequence's first tile: as numbers, which takes a third of the instructions.
  TESSERA_FN static weighed_number weigh_small(state_type const& state, float scale, float sum) {
    return number_at(position_of_small(scale, sum, state.reference));  // NaN or minus infinity for minus infinity
  }
  /// What weigh() gives as numbers, where neither a NaN nor a score of infinity takes part.
  template <ScaleQuantizer Q>
  TESSERA_FN static weighed_number weigh_number(state_type const& state, float scale, float sum, bool is_first) {
    static_assert(std::is_same_v<typename Q::code_type, float8_e4m3>,
                  "tessera: piecewise_linear_softmax makes e4m3 codes; values must be float8_quantizer<float8_e4m3>");
    if (is_first) {
      return number_at(low_line(position(scale, sum, state.reference)));
    }
    return number_at(scale < most_scale ? position_of_small(scale, sum, state.reference)
                                        : exact_position(scale, sum, state.reference));  // number_at() rounds it
  }

  /// The position on the line of the sequence's first tile, from one on the usual line; NaN stays NaN.
  TESSERA_FN static float low_line(float position) { return maximum(position, multiply_add(position, 0.5F, 4.0F)); }

  /// The `a` of the lines above, for scales below most_scale; `slope`: 8 scale.
  TESSERA_FN static float zero_of(float slope, float reference) {
    return multiply_add(slope, -integer_magic, top_code - codes_in_power_of_two * reference);
  }

  /// The number of the code at a position; 0 for NaN. 2^23 has no fraction, so that adding it rounds. The code's bits,
  /// moved to where fp32 has its own, are x = 2^(e - 7) (1 + m / 8), which is the number from code 8 on. Below, where
  /// numbers are denormal, it is 2 x - 2^-6, which is less than x there, more above, and exact.
  TESSERA_FN static weighed_number number_at(float position) {
    constexpr float integers_only = 8388608.0F;  // 2^23
    constexpr std::uint32_t rebias = (127U - 7U) << 23;
    float const rounded = maximum(position, 0.0F) + integers_only;
    float const normal = bit_cast<float>((bit_cast<std::uint32_t>(rounded) << 20) + rebias);
    float const number = minimum(normal, 2.0F * normal - 0x1p-6F);  // 2 x is exact, so that this is rounded once
    return {number, number * weight_of_number};
  }
  /// position() for scales below most_scale.
  TESSERA_FN static float position_of_small(float scale, float sum, float reference) {
    float const slope = codes_in_power_of_two * scale;
    return multiply_add(slope, integer_magic + sum, zero_of(slope, reference));
  }
  /// The position of the score `scale` * `sum` among codes, before rounding.
  TESSERA_FN static float position(float scale, float sum, float reference) {
    if (scale < most_scale) {
      return position_of_small(scale, sum, reference);
    }
    return round_to_even(exact_position(scale, sum, reference));
  }
  /// position() for other scales, before it is rounded to an integer.
  TESSERA_FN static float exact_position(float scale, float sum, float reference) {
    float const logit = multiply_add(scale, sum, 0.0F);  // rounded, as the reference is, whatever a compiler contracts
    return multiply_add(codes_in_power_of_two, logit - reference, top_code);
  }
};

static_assert(Reducer<piecewise_linear_softmax>);

}  // namespace v0
}  // namespace tessera
