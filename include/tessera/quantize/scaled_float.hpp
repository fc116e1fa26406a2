// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Quantization to small floats: one scale for each group, with which the largest magnitude gets the format's largest
/// code. Steps are finer for smaller values, so groups of few large and many small values keep the small ones.
///
///     tessera::float8_quantizer<tessera::float8_e4m3> quantizer;
///     auto largest = quantizer.range().identity();
///     for (float value : channel) { quantizer.range().push(largest, value); }
///     auto const params = quantizer.fit(largest);                        // scale = largest / 448
///     tessera::float8_e4m3 const code = quantizer.encode(channel[0], params);
///     float const near = quantizer.decode(code, params);                 // the code's value * scale
///
/// For the queries and keys of attention, a granularity names the groups: scaled_float_quantizer<float8_e4m3,
/// per_token>.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/attention_quantizer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/quantize/granularity.hpp>
#include <tessera/reduce/absolute_maximum.hpp>

namespace tessera {
inline namespace v0 {

/// The parameter that a group of a scaled_float_quantizer shares.
struct scaled_float_params {
  float scale;  ///< the value of code 1; a positive normal float
};

/// `T` is float8_e4m3, float8_e5m2 or float16. `Grouping` neighbouring values share a scale, with `whole_row` those of
/// a row; with `whole_tensor` the caller decides what a group is: a channel, a token or a whole tensor. If `Grouping`
/// is a granularity (quantize/granularity.hpp), it says which tokens of an attention head share one, and `group` is
/// then whole_tensor.
///
/// encode() rounds to the nearest code, ties to even. Values beyond the range saturate, infinities too; NaN stays NaN.
/// Codes are the same on every executor.
template <class T, auto Grouping = whole_tensor>
struct scaled_float_quantizer {
  static_assert(std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2> || std::is_same_v<T, float16>,
                "tessera: scaled_float_quantizer has codes of float8_e4m3, float8_e5m2 or float16");
  static_assert(detail::neighbours_in(Grouping) >= 0,
                "tessera: scaled_float_quantizer needs a group of values, or whole_tensor");

  using code_type = T;
  using params_type = scaled_float_params;
  using granularity_type = std::remove_cvref_t<decltype(Grouping)>;  ///< int, or the granularity of tokens

  static constexpr int group = detail::neighbours_in(Grouping);
  /// The largest finite code.
  static constexpr float highest = load(from_bits<T>(scalar_traits<T>::largest_bits));

  TESSERA_FN constexpr absolute_maximum_reducer<float> range() const { return {}; }

  TESSERA_FN constexpr params_type fit(float largest) const {
    return {max(min(largest, largest_served) / highest, smallest_scale)};
  }
  TESSERA_FN constexpr code_type encode(float value, params_type params) const {
    return store<T>(clamp(value / params.scale, -highest, highest));
  }
  TESSERA_FN constexpr float decode(code_type code, params_type params) const { return load(code) * params.scale; }

  /// The code of a value times the reciprocal of a code_scale; 0 for a reciprocal of 0.
  TESSERA_FN static constexpr code_type encode_scaled(float value, float reciprocal) {
    return reciprocal == 0.0F ? from_bits<T>(0) : store<T>(clamp(value * reciprocal, -highest, highest));
  }

  /// The largest error of a value of the group: half a step of the largest codes, and the rounding of the arithmetic.
  TESSERA_FN constexpr float max_error(params_type params) const {
    constexpr float half_a_step = 1.0F / static_cast<float>(2 << scalar_traits<T>::mantissa_bits);
    return params.scale * (highest * (half_a_step + 0x1p-22F));
  }

 private:
  static constexpr float largest_served = 3.4028e38F;  // so that highest * scale cannot round to infinity
  static constexpr float smallest_scale =              // products of codes and the scale stay exact
      std::is_same_v<T, float16> ? 0x1p-110F : smallest_code_scale;
};

/// The quantizer with codes of 8 bits: float8_e4m3 has 4 significant bits and a range of 2^18, float8_e5m2 has 3 and
/// 2^32.
template <class T>
requires(sizeof(T) == 1) using float8_quantizer = scaled_float_quantizer<T>;

static_assert(ScaleQuantizer<float8_quantizer<float8_e4m3>>);

}  // namespace v0
}  // namespace tessera
