// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// ScaleQuantizer: a Quantizer whose groups share one scale, fitted to their largest magnitude, so that products of
/// codes can be added up before they are multiplied by scales. Attention asks this of the quantizer of values and of
/// the softmax's weights, and more of that of queries and keys (concepts/score_quantizer.hpp).
///
///     auto const fitted = tessera::fit_scale(largest, Q::highest);           // quantize/code_scale.hpp
///     auto const code = Q::encode_scaled(value, fitted.reciprocal);          // the largest magnitude gets Q::highest
///     float const near = code * fitted.scale;
///
/// Laws, checked by `tessera::testing::check_scale_laws<Q>(values)`:
///   1. Q is a lawful Quantizer.
///   2. encode_scaled gives the code of encode, or a neighbouring one where rounding of the reciprocal decides.
///   3. The largest magnitude of a group gets the code `highest` or its opposite.
///   4. encode_scaled of a reciprocal of 0 is the code of 0, whatever the value.
///   5. The opposite value has the opposite code.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/because.hpp>
#include <tessera/concepts/quantizer.hpp>
#include <tessera/core/precision.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether products of codes can be made and added up: 8-bit integers, and types that load() makes floats of.
template <class Code>
inline constexpr bool is_multiplied = std::is_same_v<Code, std::int8_t> || requires(Code code) {
  load(code);
};

}  // namespace detail

// clang-format off
template <class Q>
concept ScaleQuantizer =
    Quantizer<Q> &&
    (requires { requires std::is_same_v<range_state_t<Q>, float>; }
        || because<"a ScaleQuantizer is fitted to a magnitude: range() is a Reducer with a float as its state">) &&
    (detail::is_multiplied<typename Q::code_type>
        || because<"a ScaleQuantizer has codes that are multiplied: std::int8_t, or floats such as float8_e4m3">) &&
    (requires { requires static_cast<float>(Q::highest) > 0.0F; }
        || because<"a ScaleQuantizer has its largest code, which the largest magnitude gets: "
                   "static constexpr auto highest">) &&
    (requires(float value, float reciprocal) {
       requires std::is_same_v<decltype(Q::encode_scaled(value, reciprocal)), typename Q::code_type>;
     } || because<"a ScaleQuantizer has static code_type encode_scaled(float value, float reciprocal of the scale)">);
// clang-format on

}  // namespace v0
}  // namespace tessera
