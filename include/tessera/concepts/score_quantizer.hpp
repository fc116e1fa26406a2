// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// ScoreQuantizer: what attention asks of the quantizer of queries and keys: a ScaleQuantizer that says which tokens
/// share a scale, so that a score is a sum of products of codes times the scales of query and key.
///
///     using eight = tessera::symmetric_quantizer<8, per_thread>;
///     using small_floats = tessera::scaled_float_quantizer<float8_e4m3, per_token>;
///     using method = tessera::attention<smoothed<small_floats>, float8_quantizer<float8_e4m3>>;
///
/// Laws: those of a ScaleQuantizer; and of the groups of queries and of keys, checked with them by
/// `tessera::testing::check_score_laws<Q>(values)`:
///   1. Of n tokens, a multiple of 128, each has a group from 0 to count(n) - 1, and every group has a token.
///   2. Tokens that share a group lie within one block of 128, unless is_whole: then all do.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/because.hpp>
#include <tessera/concepts/scale_quantizer.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
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

template <class Q>
concept ScoreQuantizer =
    (requires { typename Q::granularity_type::queries; typename Q::granularity_type::keys; }
        || because<"the first quantizer of an attention has a granularity: symmetric_quantizer<8, per_thread>">) &&
    TokenGroups<typename Q::granularity_type::queries> && TokenGroups<typename Q::granularity_type::keys> &&
    ScaleQuantizer<Q>;
// clang-format on

}  // namespace v0
}  // namespace tessera
