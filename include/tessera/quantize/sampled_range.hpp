// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `sampled_range<Q>`: a quantizer of small floats that fits the scale of a channel of values to a sample of tokens,
/// with room for larger values. So values need not be read twice. Adaptors nest.
///
///     using values = sampled_range<float8_quantizer<float8_e4m3>>;
///     using smooth_values = smoothed<sampled_range<float8_quantizer<float8_e4m3>>, sampled_mean>;
///
/// Floats have the same relative precision in all of their range. If the largest code stands for four times the largest
/// magnitude of the sample, that costs two of e4m3's 18 binades at the lower end, and larger values lose no precision.
/// The scale is that of the largest magnitude of all tokens, as in Q, in three cases: where the code of the channel's
/// largest value would be the largest code, where a value is not finite, and where the sample has zeros alone. So no
/// code is ever saturated, and what Q promises for zeros, constants, infinities and NaNs holds. Sequences whose sample
/// is all of their tokens have Q's scales.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/quantize/token_sample.hpp>

namespace tessera {
inline namespace v0 {

/// The value of the largest code, given the largest magnitude of a sample, or NaN if the sample's magnitude is NaN.
TESSERA_FN constexpr float with_room(float magnitude, float room) {
  constexpr float largest = 3.4028e38F;  // divided by any largest code and multiplied again it is finite
  return is_nan(magnitude) ? magnitude : minimum(room * magnitude, largest);
}

template <Quantizer Q>
struct sampled_range : Q {
  /// The quantizer whose range this adapts.
  using quantizer_type = Q;
  /// Codes.
  using code_type = typename Q::code_type;
  static_assert(!std::is_integral_v<code_type>,
                "tessera: a sampled_range is one of floats: room for larger values costs integers their precision");

  static constexpr token_sample sample{16};  ///< the sample of a sequence's tokens
  static constexpr float room = 4;           ///< the largest code's value, in largest magnitudes of the sample
  /// The least magnitude of a value that gets the largest code, in scales: half way from the code before it.
  static constexpr float limit = (load(from_bits<code_type>(scalar_traits<code_type>::largest_bits)) +
                                  load(from_bits<code_type>(scalar_traits<code_type>::largest_bits - 1))) /
                                 2;

  /// Whether values up to a magnitude have codes below the largest one, given the reciprocal of a code_scale.
  TESSERA_FN static constexpr bool has_room(float magnitude, float reciprocal) {
    return magnitude == 0.0F || (reciprocal > 0.0F && magnitude * reciprocal < limit);
  }
};

/// The sample of tokens to which a quantizer fits its ranges.
template <class Q>
inline constexpr token_sample range_sample{};
/// The sample of a sampled_range, through all of the adaptors around it.
template <class Q>
requires requires {
  Q::room;
}
inline constexpr token_sample range_sample<Q> = Q::sample;

}  // namespace v0
}  // namespace tessera
