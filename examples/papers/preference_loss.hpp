// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Direct preference optimisation (DPO: arXiv 2305.18290), without logits in memory. Of each pair of sequences one was
/// chosen and one rejected; L is the sum of log-probabilities of a sequence's labels, less that of a reference model:
///
///     margin = beta (L_chosen - L_rejected)
///     loss_pair = -(1 - smoothing) log sigmoid(margin) - smoothing log sigmoid(-margin)      loss: their mean
///
/// The library's linear_loss gives log-probabilities, and takes the gradients by them that `prefer` finds. Time and
/// memory are linear_loss's: the program itself reads and writes 16 bytes a token.
#pragma once

#include <tessera/core/math.hpp>
#include <tessera/cut_cross_entropy.hpp>

#include "token_sequences.hpp"

namespace tessera_examples {

/// What is optimised.
struct preference_objective {
  float beta = 0.1F;
  float smoothing = 0.0F;  ///< the probability that a pair's order is wrong
};

/// Losses of pairs and their gradients by tokens' losses. A group of lanes takes a pair.
struct prefer {
  static constexpr int lanes = 256;
  struct scratch_type {};
  token_sequences sequences;  ///< the chosen ones of all pairs, then the rejected ones
  preference_objective objective;
  array_view<float> token_losses;     ///< of tokens, from linear_loss: minus log-probabilities
  array_view<float const> reference;  ///< log-probabilities of tokens by the reference model
  array_view<float> margins, losses;  ///< a value for each pair; the loss is the sum of losses
  array_view<float> by_token_loss;    ///< for each token, the gradient of the loss

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t pair, scratch_type&) const {
    std::int64_t const pairs = sequences.count() / 2, rejected = pairs + pair;
    auto const gain = [&, this](std::int64_t token) { return -token_losses[token] - reference[token]; };
    float const by_both = sequences.sum_over(group, pair, gain) - sequences.sum_over(group, rejected, gain);
    float const margin = objective.beta * by_both, weight = 1 / static_cast<float>(pairs);
    float const right = 1 - objective.smoothing, wrong = objective.smoothing;
    float const slope = weight * objective.beta * (wrong * sigmoid(margin) - right * sigmoid(-margin));
    for (int lane : group) {
      for (std::int64_t t = lane; t < sequences.options.sequence; t += lanes) {
        by_token_loss[pair * sequences.options.sequence + t] = -slope;
        by_token_loss[rejected * sequences.options.sequence + t] = slope;
      }
      if (is_first(lane)) {
        margins[pair] = margin;
        losses[pair] = weight * (right * minus_log_sigmoid(margin) + wrong * minus_log_sigmoid(-margin));
      }
    }
  }

 private:
  TESSERA_FN static float sigmoid(float x) { return 1 / (1 + tessera::exp(-x)); }
  TESSERA_FN static float minus_log_sigmoid(float x) {
    float const small = tessera::exp(-absolute(x));  // log(1 + small), by its series where 1 + small loses digits
    return maximum(-x, 0.0F) + (small < 1e-3F ? small - small * small / 2 : tessera::log(1 + small));
  }
};

/// Enqueues the loss, one element, and its gradients. `space`: of exact_cross_entropy::plan_backward() with the same
/// options.
template <class Executor>
void preference_loss(Executor const& exec, exact_cross_entropy::inputs<std::int32_t> const& in, prefer const& pairs,
                     array_view<float> loss, linear_loss_gradients<bfloat16> const& gradients, workspace const& space) {
  linear_loss_options const& options = pairs.sequences.options;
  exact_cross_entropy::forward(exec, in, options, {.loss = pairs.token_losses}, space);
  exec.run(pairs, pairs.sequences.count() / 2);
  exec.run(add_up{pairs.losses, loss}, 1);
  exact_cross_entropy::backward(exec, in, options, {.loss = pairs.by_token_loss}, gradients, space);
}

}  // namespace tessera_examples
