// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Asymmetric quantization with a scale and a minimum in fp16, which take half of the room of those of
/// asymmetric_quantizer: with 2 bits and groups of 32, 3 bits a value in all, as in KIVI (arXiv 2402.02750).
///
///     tessera::asymmetric_half_quantizer<2, 32> quantizer;
///     auto range = quantizer.range().identity();
///     for (float value : group) { quantizer.range().push(range, value); }
///     auto const params = quantizer.fit(range);
///     std::uint8_t const code = quantizer.encode(group[0], params);      // 0 to 3
///     float const near = quantizer.decode(code, params);                  // minimum + code * scale
#pragma once

#include <cstdint>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/quantize/nearest_code.hpp>
#include <tessera/reduce/minimum_maximum.hpp>

namespace tessera {
inline namespace v0 {

/// The parameters that a group of an asymmetric_half_quantizer shares.
struct asymmetric_half_params {
  float16 scale;    ///< the distance of neighbouring codes; positive and finite
  float16 minimum;  ///< the value of code 0
};

namespace detail {

/// The largest fp16 that is not above a value of magnitude up to 65504.
TESSERA_FN constexpr float16 half_not_above(float value) {
  float16 const nearest = store<float16>(value);
  if (!(load(nearest) > value)) {
    return nearest;
  }
  std::uint16_t const bits = to_bits(nearest);
  if ((bits & 0x7fffU) == 0) {
    return from_bits<float16>(0x8001U);  // the negative number that is nearest to 0
  }
  return from_bits<float16>(static_cast<std::uint16_t>((bits & 0x8000U) != 0 ? bits + 1U : bits - 1U));
}

/// The smallest fp16 that is not below a positive value up to 65504.
TESSERA_FN constexpr float16 half_not_below(float value) {
  float16 const nearest = store<float16>(value);
  return load(nearest) < value ? from_bits<float16>(static_cast<std::uint16_t>(to_bits(nearest) + 1U)) : nearest;
}

}  // namespace detail

/// `Bits` is 2, 3, 4 or 8; the codes run from 0 to 2^Bits - 1. `Neighbours` neighbouring values share the parameters;
/// `whole_tensor` means that all values do.
///
/// The minimum is rounded down and the scale up, so that the codes reach all values of the group. encode() rounds to
/// the nearest code, ties to even. Values beyond the range saturate, infinities too; NaN becomes code 0. Magnitudes
/// above 65504, the largest of fp16, saturate. Steps are never narrower than 2^-24, the smallest fp16, nor than 2^-21
/// of the largest magnitude, so that codes decode to different floats.
///
/// Codes are the same on every backend. Decoded values may differ in the last bit, because a compiler may contract the
/// product and the sum.
template <int Bits, int Neighbours = 64>
struct asymmetric_half_quantizer {
  static_assert(Bits == 2 || Bits == 3 || Bits == 4 || Bits == 8,
                "tessera: asymmetric_half_quantizer has 2, 3, 4 or 8 bits");
  static_assert(Neighbours >= 0, "tessera: asymmetric_half_quantizer needs a group of values, or whole_tensor");

  using code_type = std::uint8_t;
  using params_type = asymmetric_half_params;

  static constexpr int bits = Bits;  ///< bits of a code
  static constexpr int group = Neighbours;
  static constexpr int highest = (1 << Bits) - 1;  ///< the largest code; the smallest is 0

  TESSERA_FN constexpr minimum_maximum_reducer<float> range() const { return {}; }

  /// Fits the parameters to a range; an empty range is fitted as if it held a zero.
  TESSERA_FN constexpr params_type fit(interval<float> range) const {
    if (!(range.minimum <= range.maximum)) {
      return {detail::half_not_below(narrowest), from_bits<float16>(0)};
    }
    float const low = clamp(range.minimum, -largest, largest);
    float const high = clamp(range.maximum, -largest, largest);
    float16 const minimum = detail::half_not_above(low);
    float const magnitude = max(-load(minimum), high);
    float const step = (high - load(minimum)) / static_cast<float>(highest);
    return {detail::half_not_below(max(step, max(magnitude * 0x1p-21F, narrowest))), minimum};
  }

  TESSERA_FN constexpr code_type encode(float value, params_type params) const {
    return static_cast<code_type>(nearest_code((value - load(params.minimum)) / load(params.scale), 0, highest));
  }

  TESSERA_FN constexpr float decode(code_type code, params_type params) const {
    return load(params.minimum) + static_cast<float>(code) * load(params.scale);
  }

  /// The largest error of a value of the group: half a step, and the rounding of the arithmetic; infinite where values
  /// may have saturated.
  TESSERA_FN constexpr float max_error(params_type params) const {
    float const scale = load(params.scale);
    float const low = load(params.minimum);
    float const top = low + static_cast<float>(highest) * scale;
    float const magnitude = max(-low, top);
    return magnitude >= largest ? infinity : scale * (0.5F + 0x1p-14F) + magnitude * 0x1p-23F;
  }

 private:
  static constexpr float largest = 65504.0F;
  static constexpr float narrowest = 0x1p-24F;
};

static_assert(Quantizer<asymmetric_half_quantizer<4, 64>>);

}  // namespace v0
}  // namespace tessera
