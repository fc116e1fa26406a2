// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// LogitReducer: a Reducer that a loss can run over rows of logits, beside the log-sum-exp or with it.
///
///     struct largest_of_each {                                       // a user's own
///       using state_type = float;
///       using input_type = float;                     // or indexed_value<float>: logits with their entries
///       TESSERA_FN constexpr float identity() const { return -infinity; }
///       TESSERA_FN constexpr void push(float& state, float logit) const { state = maximum(state, logit); }
///       TESSERA_FN constexpr void merge(float& into, float other) const { into = maximum(into, other); }
///     };
///     using loss = tessera::linear_loss<loss_gemm_tile<bfloat16>, largest_of_each>;
///
/// Programs construct the Reducer where they need it, on several threads and in several launches, so that it must have
/// no data members.
#pragma once

#include <type_traits>

#include <tessera/concepts/reducer.hpp>
#include <tessera/core/because.hpp>
#include <tessera/reduce/arg_max.hpp>
#include <tessera/reduce/entropy.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/paired.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// Whether an input of a Reducer is a logit, or a logit with its entry.
template <class Input>
inline constexpr bool takes_logits = std::is_same_v<Input, indexed_value<float>> || std::is_convertible_v<float, Input>;

}  // namespace detail

// clang-format off
/// A Reducer of logits, or of logits with their entries, that has no data members.
template <class R>
concept LogitReducer =
    Reducer<R> &&
    (detail::takes_logits<typename R::input_type>
        || because<"a loss's Reducer takes logits: using input_type = float; or = tessera::indexed_value<float>;">) &&
    (std::is_empty_v<R>
        || because<"a loss's Reducer is an empty type, because programs make it where they need it">);
// clang-format on

namespace detail {

template <LogitReducer R>
inline constexpr bool has_log_sum_exp = has_reducer<lse_reducer<float>, R> || has_reducer<entropy_reducer<float>, R>;

}  // namespace detail

/// The Reducer with which a loss is computed: `R` if it has a log-sum-exp, else the pair of one and `R`.
template <LogitReducer R>
using loss_reducer = std::conditional_t<detail::has_log_sum_exp<R>, R, paired_reducer<lse_reducer<float>, R>>;

}  // namespace v0
}  // namespace tessera
