// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Asymmetric quantization: codes from the smallest value of a group to the largest, with a scale and a minimum for
/// each.
///
///     tessera::asymmetric_quantizer<4, 64> quantizer;
///     auto range = quantizer.range().identity();
///     for (float value : group) { quantizer.range().push(range, value); }
///     auto const params = quantizer.fit(range);                           // scale = (maximum - minimum) / 15
///     std::uint8_t const code = quantizer.encode(group[0], params);      // 0 to 15
///     float const near = quantizer.decode(code, params);                  // minimum + code * scale
///
/// `asymmetric_half_quantizer` has its scale and its minimum in fp16, which take half of the room: with 2 bits and
/// groups of 32, 3 bits a value in all, as in KIVI (arXiv 2402.02750).
#pragma once

#include <cstdint>

#include <tessera/concepts/quantizer.hpp>
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

/// The parameters that a group of an asymmetric_quantizer shares, stored as Number.
template <class Number = float>
struct asymmetric_params {
  Number scale;    ///< the distance of neighbouring codes; positive and finite
  Number minimum;  ///< the value of code 0
};

namespace detail {

/// The largest Number that is not above a value whose magnitude is at most that of the largest Number.
template <class Number>
TESSERA_FN constexpr Number stored_not_above(float value) {
  using bits_type = typename scalar_traits<Number>::bits_type;
  constexpr auto sign = static_cast<bits_type>(bits_type{1} << (scalar_traits<Number>::bits - 1));
  Number const nearest = store<Number>(value);
  if (!(load(nearest) > value)) {
    return nearest;
  }
  bits_type const pattern = to_bits(nearest);
  if ((pattern & ~sign) == 0) {
    return from_bits<Number>(static_cast<bits_type>(sign + 1U));  // the negative number that is nearest to 0
  }
  return from_bits<Number>(static_cast<bits_type>((pattern & sign) != 0 ? pattern + 1U : pattern - 1U));
}

/// The smallest Number that is not below a positive value up to the largest Number.
template <class Number>
TESSERA_FN constexpr Number stored_not_below(float value) {
  using bits_type = typename scalar_traits<Number>::bits_type;
  Number const nearest = store<Number>(value);
  return load(nearest) < value ? from_bits<Number>(static_cast<bits_type>(to_bits(nearest) + 1U)) : nearest;
}

}  // namespace detail

/// `Bits` is 2, 3, 4 or 8; the codes run from 0 to 2^Bits - 1. `Neighbours` neighbouring values share the parameters;
/// `whole_tensor` means that all values do. `Number` is the type of the parameters: float, bfloat16 or float16.
///
/// The minimum is rounded down and the scale up, so that the codes reach all values of the group. encode() rounds to
/// the nearest code, ties to even. Values beyond the range saturate, infinities too; NaN becomes code 0. With
/// parameters in float a group of equal values is restored exactly. Magnitudes above 1.7e38, or above 65504 with
/// parameters in fp16, saturate, so that the width of a range is finite.
///
/// Steps are never narrower than the smallest normal float, nor than the smallest Number, nor than 2^-21 of the largest
/// magnitude: otherwise neighbouring codes would decode to the same float. The last matters only for groups far away
/// from zero whose values differ in their last bits.
///
/// Codes are the same on every executor. Decoded values may differ in the last bit, because a compiler may contract the
/// product and the sum.
template <int Bits, int Neighbours = 64, class Number = float>
struct asymmetric_quantizer {
  static_assert(Bits == 2 || Bits == 3 || Bits == 4 || Bits == 8,
                "tessera: asymmetric_quantizer has 2, 3, 4 or 8 bits");
  static_assert(Neighbours >= 0, "tessera: asymmetric_quantizer needs a group of values, or whole_tensor");
  static_assert(scalar_traits<Number>::bits >= 16,
                "tessera: asymmetric_quantizer has parameters in float, bfloat16 or float16");

  using code_type = std::uint8_t;
  using params_type = asymmetric_params<Number>;

  static constexpr int bits = Bits;  ///< bits of a code
  static constexpr int group = Neighbours;
  static constexpr int highest = (1 << Bits) - 1;  ///< the largest code; the smallest is 0

  TESSERA_FN constexpr minimum_maximum_reducer<float> range() const { return {}; }

  /// Fits the parameters to a range; an empty range is fitted as if it held a zero.
  TESSERA_FN constexpr params_type fit(interval<float> range) const {
    if (!(range.minimum <= range.maximum)) {
      return {detail::stored_not_below<Number>(narrowest()), store<Number>(0.0F)};
    }
    float const high = clamp(range.maximum, -largest(), largest());
    Number const minimum = detail::stored_not_above<Number>(clamp(range.minimum, -largest(), largest()));
    float const low = load(minimum);
    float const step = (high - low) / static_cast<float>(highest);
    float const least = max(max(-low, high) * 0x1p-21F, narrowest());
    return {detail::stored_not_below<Number>(max(step, least)), minimum};
  }

  TESSERA_FN constexpr code_type encode(float value, params_type params) const {
    return static_cast<code_type>(nearest_code((value - load(params.minimum)) / load(params.scale), 0, highest));
  }

  TESSERA_FN constexpr float decode(code_type code, params_type params) const {
    return decode_whole(static_cast<float>(code), params);
  }
  /// The same for a code as a float, which need not be converted one by one.
  TESSERA_FN constexpr float decode_whole(float code, params_type params) const {
    return load(params.minimum) + code * load(params.scale);
  }

  /// The largest error of a value of the group: half a step, and the rounding of the arithmetic; infinite where values
  /// may have saturated.
  TESSERA_FN constexpr float max_error(params_type params) const {
    float const scale = load(params.scale);
    float const low = load(params.minimum);
    float const top = low + static_cast<float>(highest) * scale;
    float const magnitude = max(-low, top);
    return magnitude >= largest() ? infinity : scale * (0.5F + 0x1p-14F) + magnitude * 0x1p-23F;
  }

 private:
  /// The largest magnitude that does not saturate: at most half of the largest float.
  TESSERA_FN static constexpr float largest() {
    return min(load(from_bits<Number>(scalar_traits<Number>::largest_bits)), 1.7e38F);
  }
  TESSERA_FN static constexpr float narrowest() { return max(load(from_bits<Number>(1)), smallest_code_scale); }
};

/// The quantizer with its parameters in fp16.
template <int Bits, int Neighbours = 64>
using asymmetric_half_quantizer = asymmetric_quantizer<Bits, Neighbours, float16>;

static_assert(Quantizer<asymmetric_quantizer<4, 64>> && Quantizer<asymmetric_half_quantizer<4, 64>>);

}  // namespace v0
}  // namespace tessera
