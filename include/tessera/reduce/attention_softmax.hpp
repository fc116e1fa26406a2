// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// AttentionSoftmax: what attention requires of the online softmax of a row of scores, and of the codes of its weights.
/// Models: online_softmax<float> for codes of any quantizer, piecewise_linear_softmax for codes in e4m3.
///
///     auto state = softmax.identity();
///     for (auto const& piece : pieces) {
///       total *= softmax.turn(state, largest_of(piece));          // earlier sums move to the piece's reference
///       for (auto const& [sum, value] : piece) {                  // the score is scale * sum, in base 2
///         auto const [code, weight] = softmax.template weigh<Q>(state, scale, sum, is_first_tile);
///         state.sum += weight;
///         total += number(code) * value;
///       }
///     }
///     float const log_sum_exp = softmax.value(state);
///
/// A softmax may have `weigh_number<Q>(state, scale, sum, is_first)`, which gives the number of the code in its place
/// (a weighed_number), where no NaN and no infinite score takes part; and, for scales below its `most_scale`,
/// `weigh_small(state, scale, sum)`, which does so for keys that are not in the first tile. If these weights are the
/// numbers times a constant, it may say so as `weight_of_number`, so that one sum is enough. Programs use them where
/// `numbers_of` names the softmax itself, so that one that inherits them and has a weigh() of its own gets that: they
/// take a fraction of the instructions.
///
/// Laws, checked by `tessera::testing::check_softmax_laws<S, Q>(scores, tolerance)`:
///   1. However a row is cut into pieces, value() is the logarithm of the sum of 2^score, up to the tolerance.
///   2. Weights are from 0 to 1, and a code is the weight times Q::highest, up to rounding and the tolerance.
///   3. The states of two pieces merge to the state of both, in either order.
///   4. weigh_number, if numbers_of names the softmax, gives weigh()'s weight and the number of its code. With
///      weight_of_number, the weight is the number times that.
#pragma once

#include <type_traits>

#include <tessera/concepts/attention_quantizer.hpp>
#include <tessera/concepts/reducer.hpp>
#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
/// A softmax of scores whose weights become codes of Q.
template <class S, class Q>
concept AttentionSoftmax =
    Reducer<S> &&
    (std::is_empty_v<S>
        || because<"a softmax of attention is an empty type, because programs make it where they need it">) &&
    (requires(typename S::state_type& state) {
       requires std::is_same_v<decltype(state.largest), float>;
       requires std::is_same_v<decltype(state.reference), float>;
       requires std::is_same_v<decltype(state.sum), float>;
     } || because<"a softmax of attention has a state of the floats largest, reference and sum">) &&
    (requires(S const& s, typename S::state_type& state) {
       requires std::is_same_v<decltype(s.merge(state, state)), typename S::factors>;
       requires std::is_same_v<decltype(s.merge_factors(state, state).of_first), float>;
       requires std::is_same_v<decltype(s.merge_factors(state, state).of_second), float>;
     } || because<"a softmax of attention has factors merge(state&, state) const and factors merge_factors(state, "
                  "state) const, with floats of_first and of_second">) &&
    (requires(S const& s, typename S::state_type& state, float largest) {
       requires std::is_same_v<decltype(s.turn(state, largest)), float>;
       requires std::is_same_v<decltype(s.value(state)), float>;
     } || because<"a softmax of attention has float turn(state&, float largest of a piece) const "
                  "and float value(state) const">) &&
    (requires(S const& s, typename S::state_type const& state, float scale, float sum) {
       requires std::is_same_v<decltype(s.template weigh<Q>(state, scale, sum, true).code), typename Q::code_type>;
       requires std::is_same_v<decltype(s.template weigh<Q>(state, scale, sum, true).weight), float>;
     } || because<"a softmax of attention makes codes of the quantizer of values: "
                  "weigh<Q>(state, scale, sum, is_first) gives {Q::code_type code; float weight;}">);
// clang-format on

}  // namespace v0
}  // namespace tessera
