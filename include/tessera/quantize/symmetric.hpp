// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Symmetric quantization: codes around zero, one scale for each group. Zero is exact and signs are kept.
///
///     tessera::symmetric_quantizer<8, 64> quantizer;
///     auto largest = quantizer.range().identity();
///     for (float value : group) { quantizer.range().push(largest, value); }
///     auto const params = quantizer.fit(largest);                        // scale = largest / 127
///     std::int8_t const code = quantizer.encode(group[0], params);      // -127 to 127
///     float const near = quantizer.decode(code, params);                 // code * scale
///
/// For the tokens of an attention head, a granularity names the groups: symmetric_quantizer<8, per_thread>.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/attention_quantizer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/quantize/granularity.hpp>
#include <tessera/quantize/nearest_code.hpp>
#include <tessera/reduce/absolute_maximum.hpp>

namespace tessera {
inline namespace v0 {

/// The parameter that a group of a symmetric_quantizer shares.
struct symmetric_params {
  float scale;  ///< the value of code 1; a positive normal float
};

/// `Bits` is 8 or 4; the codes run from -(2^(Bits-1) - 1) to its opposite, so that negating a value negates its code.
/// `Grouping` neighbouring values share a scale; `whole_tensor` means that all values do. If `Grouping` is a
/// granularity (quantize/granularity.hpp), it says which tokens do, and `group` is then whole_tensor.
///
/// encode() rounds to the nearest code, ties to even. Values beyond the range saturate, infinities too; NaN becomes 0.
/// Codes are the same on every executor.
template <int Bits, auto Grouping = 64>
struct symmetric_quantizer {
  static_assert(Bits == 8 || Bits == 4, "tessera: symmetric_quantizer has 8 or 4 bits");
  static_assert(detail::neighbours_in(Grouping) >= 0,
                "tessera: symmetric_quantizer needs a group of values, or whole_tensor");

  using code_type = std::int8_t;
  using params_type = symmetric_params;
  using granularity_type = std::remove_cvref_t<decltype(Grouping)>;  ///< int, or the granularity of tokens

  static constexpr int bits = Bits;  ///< bits of a code
  static constexpr int group = detail::neighbours_in(Grouping);
  static constexpr int highest = (1 << (Bits - 1)) - 1;  ///< the largest code; the smallest is its opposite

  TESSERA_FN constexpr absolute_maximum_reducer<float> range() const { return {}; }

  TESSERA_FN constexpr params_type fit(float largest) const {
    return {max(min(largest, largest_served) / static_cast<float>(highest), smallest_code_scale)};
  }

  TESSERA_FN constexpr code_type encode(float value, params_type params) const {
    return static_cast<code_type>(nearest_code(value / params.scale, -highest, highest));
  }

  /// The code of a value times the reciprocal of a code_scale.
  TESSERA_FN static constexpr code_type encode_scaled(float value, float reciprocal) {
    return static_cast<code_type>(nearest_code(value * reciprocal, -highest, highest));
  }

  TESSERA_FN constexpr float decode(code_type code, params_type params) const {
    return decode_whole(static_cast<float>(code), params);
  }
  /// The same for a code as a float, which need not be converted one by one.
  TESSERA_FN constexpr float decode_whole(float code, params_type params) const { return code * params.scale; }

  /// The largest error of a value of the group: half a step, and the rounding of the arithmetic.
  TESSERA_FN constexpr float max_error(params_type params) const { return params.scale * (0.5F + 0x1p-15F); }

 private:
  static constexpr float largest_served = 3.4e38F;  // so that highest * scale cannot round to infinity
};

static_assert(ScaleQuantizer<symmetric_quantizer<8, 64>>);

}  // namespace v0
}  // namespace tessera
