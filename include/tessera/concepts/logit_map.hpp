// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// LogitMap: a function that the logits of a loss go through before the softmax, with its derivative.
///
///     struct adjusted {                                    // a reader's own: logits plus the logarithm of a prior
///       array_view<float const> log_prior;                 // a value for each entry of the vocabulary
///       TESSERA_FN float operator()(float logit, std::int64_t, std::int64_t entry) const {
///         return logit + log_prior[entry];
///       }
///       TESSERA_FN float slope(float, std::int64_t, std::int64_t) const { return 1.0F; }
///       float steepest() const { return 1.0F; }
///     };
///     using loss = tessera::cut_cross_entropy_of<bfloat16, lse_reducer<float>, adjusted>;
///     loss::inputs<std::int64_t> const inputs{.hidden = h, .classifier = c, .labels = l, .map = {log_prior}};
///
/// The map is given the logit after bias, softcap and temperature, the number of the token, a row of the hidden states,
/// and the entry of the vocabulary. It is called where the executor runs, in any order, once or more for each token
/// with a label and each entry, and may be called for tokens without one. The map is not called for a logit of minus
/// infinity, of an entry that the bias has masked.
///
/// Models: identity_logits, and users' own.
///
/// Laws, checked by `tessera::testing::check_logit_map_laws(map, logits, entries)`:
///   1. The result and the slope depend on the arguments alone; a copy of the map's bytes is the same map.
///   2. `slope` is the derivative of the result by the logit.
///   3. `steepest()`, positive and finite, is at least the magnitude of every slope. Gradients by logits in fp16 are
///      scaled by it: where slopes are larger, they may overflow.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
/// A map of logits: a trivially copyable function of a logit, its token and its entry, with its derivative.
template <class M>
concept LogitMap =
    (std::is_trivially_copyable_v<M>
        || because<"a map of logits is trivially copyable, because programs carry it as bytes">) &&
    (sizeof(M) <= 1024
        || because<"a map of logits has at most 1024 bytes, because programs carry it; more lies behind a view">) &&
    (requires(M const& map, float logit, std::int64_t token, std::int64_t entry) {
       { map(logit, token, entry) } -> std::same_as<float>;
     } || because<"a map of logits gives a logit: "
                  "float operator()(float logit, std::int64_t token, std::int64_t entry) const">) &&
    (requires(M const& map, float logit, std::int64_t token, std::int64_t entry) {
       { map.slope(logit, token, entry) } -> std::same_as<float>;
     } || because<"a map of logits gives its derivative by the logit: "
                  "float slope(float logit, std::int64_t token, std::int64_t entry) const">) &&
    (requires(M const& map) {
       { map.steepest() } -> std::same_as<float>;
     } || because<"a map of logits bounds the magnitude of its slopes: float steepest() const">);
// clang-format on

}  // namespace v0
}  // namespace tessera
