// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// ScaleQuantizer and ScoreQuantizer: what attention requires of the quantizers of its operands.
///
/// A ScaleQuantizer codes values, and the weights of the softmax. It is a Quantizer whose groups share one scale,
/// fitted to their largest magnitude, so that products of codes can be added up before they are multiplied by scales. A
/// ScoreQuantizer codes queries and keys. It is a ScaleQuantizer that says which tokens share a scale, so that a score
/// is a sum of products of codes times the scales of query and key.
///
///     auto const fitted = tessera::fit_scale(largest, Q::highest);           // quantize/code_scale.hpp
///     auto const code = Q::encode_scaled(value, fitted.reciprocal);          // the largest magnitude gets Q::highest
///     float const near = code * fitted.scale;
///
///     using small_floats = tessera::scaled_float_quantizer<float8_e4m3, per_token>;
///     using method = tessera::attention<smoothed<small_floats>, float8_quantizer<float8_e4m3>>;
///
/// Laws of a ScaleQuantizer, checked by `tessera::testing::check_scale_laws<Q>(values)`:
///   1. It is a lawful Quantizer.
///   2. encode_scaled gives the code of encode, or a neighbouring one where rounding of the reciprocal decides.
///   3. The largest magnitude of a group gets the code `highest` or its opposite.
///   4. encode_scaled with a reciprocal of 0 gives the code of 0, whatever the value.
///   5. The opposite value has the opposite code.
/// Further laws of a ScoreQuantizer, checked with those by `tessera::testing::check_score_laws<Q>(values)`, for the
/// groups of queries and those of keys:
///   6. Of n tokens, a multiple of 128, each has a group from 0 to count(n) - 1, and every group has a token.
///   7. Tokens that share a group lie within one block of 128, unless is_whole: then all tokens of a head share one.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/core/because.hpp>
#include <tessera/core/precision.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether products of codes can be made and added up: 8-bit integers, and types of at most 16 bits that load() makes
/// floats of.
template <class Code>
inline constexpr bool is_multiplied = std::is_same_v<Code, std::int8_t> || requires(Code code) {
  load(code);
  requires sizeof(Code) <= 2;
};

}  // namespace detail

// clang-format off
/// A quantizer of values and of the weights of a softmax, with one scale for a group.
template <class Q>
concept ScaleQuantizer =
    Quantizer<Q> &&
    (requires { requires std::is_same_v<range_state_t<Q>, float>; }
        || because<"a ScaleQuantizer is fitted to a magnitude: range() is a Reducer with a float as its state">) &&
    (detail::is_multiplied<typename Q::code_type>
        || because<"a ScaleQuantizer has codes that are multiplied: std::int8_t, or floats of 8 or 16 bits">) &&
    (requires { requires static_cast<float>(Q::highest) > 0.0F; }
        || because<"a ScaleQuantizer has its largest code, which the largest magnitude gets: "
                   "static constexpr auto highest">) &&
    (requires(float value, float reciprocal) {
       requires std::is_same_v<decltype(Q::encode_scaled(value, reciprocal)), typename Q::code_type>;
     } || because<"a ScaleQuantizer has static code_type encode_scaled(float value, float reciprocal of the scale)">);

/// The groups of tokens of an attention head that share a scale.
template <class G>
concept TokenGroups =
    (requires { requires std::is_same_v<decltype(G::is_whole), bool const>; }
        || because<"groups of tokens say whether all tokens of a head are one: static constexpr bool is_whole">) &&
    (requires(std::int64_t token) {
       requires std::is_same_v<decltype(G::group_of(token)), std::int64_t>;
       requires std::is_same_v<decltype(G::count(token)), std::int64_t>;
     } || because<"groups of tokens have static std::int64_t group_of(std::int64_t token) "
                  "and static std::int64_t count(std::int64_t tokens)">);

/// A quantizer of the queries and keys of attention.
template <class Q>
concept ScoreQuantizer =
    (requires { typename Q::granularity_type::queries; typename Q::granularity_type::keys; }
        || because<"the first quantizer of an attention has a granularity: symmetric_quantizer<8, per_thread>">) &&
    TokenGroups<typename Q::granularity_type::queries> && TokenGroups<typename Q::granularity_type::keys> &&
    ScaleQuantizer<Q>;
// clang-format on

}  // namespace v0
}  // namespace tessera
