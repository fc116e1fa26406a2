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
#pragma once

#include <cstdint>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/quantize/nearest_code.hpp>
#include <tessera/reduce/minimum_maximum.hpp>

namespace tessera {
inline namespace v0 {

/// The parameters that a group of an asymmetric_quantizer shares.
struct asymmetric_params {
  float scale;    ///< the distance of neighbouring codes; a positive normal float
  float minimum;  ///< the value of code 0
};

/// `Bits` is 2, 3, 4 or 8; the codes run from 0 to 2^Bits - 1. `Neighbours` neighbouring values share the parameters;
/// `whole_tensor` means that all values do.
///
/// encode() rounds to the nearest code, ties to even. Values beyond the range saturate, infinities too; NaN becomes
/// code 0. A group of equal values comes back exactly. Magnitudes above 1.7e38 saturate, so that the width of a range
/// is finite.
///
/// Steps are never narrower than 2^-21 of the largest magnitude: otherwise neighbouring codes would decode to the same
/// float. That matters only for groups far away from zero whose values differ in their last bits.
///
/// Codes are the same on every backend. Decoded values may differ in the last bit, because a compiler may contract the
/// product and the sum.
template <int Bits, int Neighbours = 64>
struct asymmetric_quantizer {
  static_assert(Bits == 2 || Bits == 3 || Bits == 4 || Bits == 8,
                "tessera: asymmetric_quantizer has 2, 3, 4 or 8 bits");
  static_assert(Neighbours >= 0, "tessera: asymmetric_quantizer needs a group of values, or whole_tensor");

  using code_type = std::uint8_t;
  using params_type = asymmetric_params;

  static constexpr int bits = Bits;  ///< bits of a code
  static constexpr int group = Neighbours;
  static constexpr int highest = (1 << Bits) - 1;  ///< the largest code; the smallest is 0

  TESSERA_FN constexpr minimum_maximum_reducer<float> range() const { return {}; }

  /// Fits the parameters to a range; an empty range is fitted as if it held a zero.
  TESSERA_FN constexpr params_type fit(interval<float> range) const {
    if (!(range.minimum <= range.maximum)) {
      return {smallest_code_scale, 0.0F};
    }
    float const low = clamp(range.minimum, -largest_served, largest_served);
    float const high = clamp(range.maximum, -largest_served, largest_served);
    float const narrowest = max(magnitude(low, high) * 0x1p-21F, smallest_code_scale);
    return {max((high - low) / static_cast<float>(highest), narrowest), low};
  }

  TESSERA_FN constexpr code_type encode(float value, params_type params) const {
    return static_cast<code_type>(nearest_code((value - params.minimum) / params.scale, 0, highest));
  }

  TESSERA_FN constexpr float decode(code_type code, params_type params) const {
    return params.minimum + static_cast<float>(code) * params.scale;
  }

  /// The largest error of a value of the group: half a step, and the rounding of the arithmetic.
  TESSERA_FN constexpr float max_error(params_type params) const {
    float const top = params.minimum + static_cast<float>(highest) * params.scale;
    return params.scale * (0.5F + 0x1p-14F) + magnitude(params.minimum, top) * 0x1p-23F;
  }

 private:
  static constexpr float largest_served = 1.7e38F;  // half of the largest float

  TESSERA_FN static constexpr float magnitude(float a, float b) { return max(a < 0 ? -a : a, b < 0 ? -b : b); }
};

static_assert(Quantizer<asymmetric_quantizer<4, 64>>);

}  // namespace v0
}  // namespace tessera
