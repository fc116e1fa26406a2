// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Quantizer: turns values into small codes and back, with parameters shared by a group of neighbouring values.
///
/// The parameters come from a range, and the range is a Reducer: so any program that reduces can find it, over a block,
/// a warp, a channel or a token.
///
///     tessera::symmetric_quantizer<8, 64> quantizer;
///     auto range = quantizer.range().identity();
///     for (float value : group) { quantizer.range().push(range, value); }
///     auto const params = quantizer.fit(range);
///     auto const code = quantizer.encode(group[0], params);
///     float const near = quantizer.decode(code, params);
///
/// Laws, checked by `tessera::testing::check_laws<Q>(values)`:
///   1. range() is a lawful Reducer.
///   2. encode is idempotent: what decode returned encodes to the same code again.
///   3. encode and decode keep order: a smaller value never decodes to a larger one.
///   4. Every decoded value is finite: for values far beyond the range, for infinities, for a group of equal values and
///      for an empty group.
///   5. Where Q has `float max_error(params_type) const`, no value of the group is moved by more than that.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include <tessera/concepts/reducer.hpp>
#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

/// The group size of a Quantizer whose parameters serve a whole tensor.
inline constexpr int whole_tensor = 0;
/// A group size that no row of a matrix exceeds: a row's values share their parameters.
inline constexpr int whole_row = 1 << 30;

/// The Reducer that finds the range of a Quantizer, and its state.
template <class Q>
using range_reducer_t = std::remove_cvref_t<decltype(std::declval<Q const&>().range())>;

/// The state of a Quantizer's range Reducer.
template <class Q>
using range_state_t = typename range_reducer_t<Q>::state_type;

// clang-format off
template <class Q>
concept Quantizer =
    (requires {
       requires std::is_trivially_copyable_v<typename Q::code_type>;
       requires std::is_trivially_copyable_v<typename Q::params_type>;
     } || because<"a Quantizer names trivially copyable types: using code_type = ...; using params_type = ...;">) &&
    (requires { requires std::same_as<decltype(Q::group), int const>; requires Q::group >= 0; }
        || because<"a Quantizer says how many values share parameters: static constexpr int group = ...;">) &&
    (requires(Q const& q) {
       requires Reducer<range_reducer_t<Q>>;
       requires std::is_convertible_v<float, typename range_reducer_t<Q>::input_type>;
     } || because<"a Quantizer has range() const, a Reducer that takes in float">) &&
    (requires(Q const& q, range_state_t<Q> const& range) {
       requires std::is_same_v<decltype(q.fit(range)), typename Q::params_type>;
     } || because<"a Quantizer has fit(): params_type fit(range state) const">) &&
    (requires(Q const& q, float value, typename Q::code_type code, typename Q::params_type const& params) {
       requires std::is_same_v<decltype(q.encode(value, params)), typename Q::code_type>;
       requires std::is_same_v<decltype(q.decode(code, params)), float>;
     } || because<"a Quantizer has code_type encode(float, params_type) const "
                  "and float decode(code_type, params_type) const">);
// clang-format on

}  // namespace v0
}  // namespace tessera
