// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `in_high_bits<Q>`: a quantizer of 4 bits whose codes lie in the high bits of bytes: they are 16 times those of Q,
/// and scales a sixteenth. The innermost adaptor.
///
///     using four = smoothed<in_high_bits<symmetric_quantizer<4, per_thread>>>;
///     static_assert(std::is_same_v<stored_code<four>, std::int8_t> && four::highest == 112);
///
/// Values and errors are Q's. Sums of products of codes have the range of those of 8 bits, so that scores with terms
/// (program/attention/detail/score_terms.cuh) are as exact, and a nibble becomes such a code by a shift and a mask. So
/// programs that multiply bytes take codes of 4 bits. Powers of two are exact: results have the bits of those with Q,
/// unless the largest magnitude of a group is below 2^-119, where scales end.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

template <Quantizer Q>
struct in_high_bits : Q {
  static_assert(Q::bits == 4 && std::is_same_v<typename Q::code_type, std::int8_t>,
                "tessera: in_high_bits is for codes of 4 bits: symmetric_quantizer<4, a granularity>");
  static_assert(
      !requires { typename Q::quantizer_type; } && !requires { typename Q::pair_type; },
      "tessera: in_high_bits is the innermost adaptor: smoothed<in_high_bits<Q>>");
  using code_type = std::int8_t;
  using params_type = typename Q::params_type;

  static constexpr int step = 16;                    ///< the distance between codes
  static constexpr int highest = step * Q::highest;  ///< the largest code; the smallest is its opposite

  TESSERA_FN constexpr params_type fit(float largest) const {
    return {Q::fit(largest).scale * (1.0F / static_cast<float>(step))};
  }
  TESSERA_FN constexpr code_type encode(float value, params_type params) const {
    return static_cast<code_type>(step * Q::encode(value, of_step(params)));
  }
  /// The code of a value times the reciprocal of a code_scale.
  TESSERA_FN static constexpr code_type encode_scaled(float value, float reciprocal) {
    return static_cast<code_type>(step * Q::encode_scaled(value, reciprocal * (1.0F / static_cast<float>(step))));
  }
  /// The largest error of a value of the group.
  TESSERA_FN constexpr float max_error(params_type params) const { return Q::max_error(of_step(params)); }

 private:
  TESSERA_FN static constexpr params_type of_step(params_type params) {
    return {params.scale * static_cast<float>(step)};
  }
};

/// The distance between neighbouring codes of a quantizer of integers, through all of the adaptors around it.
template <class Q>
inline constexpr int code_step = 1;
/// That of in_high_bits.
template <class Q>
requires requires {
  Q::step;
}
inline constexpr int code_step<Q> = Q::step;

}  // namespace v0
}  // namespace tessera
