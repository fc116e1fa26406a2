// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The clipped policy gradient of PPO (arXiv 1707.06347) and GRPO (arXiv 2402.03300), without logits in memory. For
/// each token, with l the log-probability of its label, A its advantage and H the entropy of its softmax:
///
///     r = exp(l - old l)      d = reference l - l
///     loss_t = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) + kl_factor (exp(d) - d - 1) - entropy_factor H
///     loss = mean over sequences of their tokens' mean loss_t (GRPO), or mean over all tokens (PPO)
///
/// The library's linear_loss gives l and H, and takes the gradients by both that `clip_policy` finds. Time and memory
/// are linear_loss's: the program itself reads and writes 32 bytes a token.
#pragma once

#include <tessera/core/math.hpp>
#include <tessera/cut_cross_entropy.hpp>

#include "token_sequences.hpp"

namespace tessera_examples {

/// Nothing is left out of gradients. With cut_cross_entropy_of instead, blocks where nothing reaches 2^-12 are.
using policy_loss = exact_cross_entropy_of<bfloat16, loss_statistics>;

/// What is optimised.
struct policy_objective {
  float clip_low = 0.2F, clip_high = 0.2F;
  float kl_factor = 0.0F, entropy_factor = 0.0F;
  bool is_by_sequence = true;  ///< each sequence counts alike, as in GRPO; false: each token, as in PPO
};

/// Losses and their gradients by log-probabilities and entropies. A group of lanes takes a sequence.
struct clip_policy {
  static constexpr int lanes = 256;
  struct scratch_type {};
  token_sequences sequences;
  policy_objective objective;
  array_view<float> token_losses, entropies;      ///< of tokens, from linear_loss; a loss is minus a log-probability
  array_view<std::int64_t> labelled;              ///< one element, from linear_loss: how many tokens count
  array_view<float const> old_log_probabilities;  ///< of tokens, when they were sampled
  array_view<float const> reference;              ///< log-probabilities of tokens; not read where kl_factor is 0
  matrix_view<float const> advantages;  ///< sequences x their tokens, with a stride of 0 if each sequence has one
  array_view<float> losses;             ///< a value for each sequence; the loss is their sum
  array_view<float> by_token_loss, by_entropy;  ///< for each token that counts, gradients of the loss

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t sequence, scratch_type&) const {
    float const own = sequences.sum_over(group, sequence, [](std::int64_t) { return 1.0F; });
    float const tokens =
        objective.is_by_sequence ? own * static_cast<float>(sequences.count()) : static_cast<float>(labelled[0]);
    float const weight = own > 0 ? 1 / tokens : 0.0F;  // of each token
    auto const differentiate = [&, this](std::int64_t token) {
      float const advantage = advantages(sequence, token % sequences.options.sequence);
      float const ratio = tessera::exp(-token_losses[token] - old_log_probabilities[token]);
      float const clipped = minimum(maximum(ratio, 1 - objective.clip_low), 1 + objective.clip_high);
      bool const is_clipped = clipped * advantage < ratio * advantage;
      float loss = -(is_clipped ? clipped : ratio) * advantage - objective.entropy_factor * entropies[token];
      float slope = is_clipped ? 0.0F : -ratio * advantage;  // by the log-probability
      if (objective.kl_factor != 0) {
        float const apart = reference[token] + token_losses[token], odds = tessera::exp(apart);
        loss += objective.kl_factor * (odds - apart - 1);
        slope += objective.kl_factor * (1 - odds);
      }
      by_token_loss[token] = -weight * slope;
      by_entropy[token] = -weight * objective.entropy_factor;
      return weight * loss;
    };
    float const loss = sequences.sum_over(group, sequence, differentiate);
    for (int lane : group) {
      if (is_first(lane)) {
        losses[sequence] = loss;
      }
    }
  }
};

/// Enqueues the loss, one element, and its gradients. `space`: of policy_loss::plan_backward() with the same options.
template <class Executor>
void policy_gradient_loss(Executor const& exec, policy_loss::inputs<std::int32_t> const& in, clip_policy const& clip,
                          array_view<float> loss, linear_loss_gradients<bfloat16> const& gradients,
                          workspace const& space) {
  linear_loss_options const& options = clip.sequences.options;
  linear_loss_outputs const of_tokens{
      .loss = clip.token_losses, .entropy = clip.entropies, .labelled_count = clip.labelled};
  policy_loss::forward(exec, in, options, of_tokens, space);
  exec.run(clip, clip.sequences.count());
  exec.run(add_up{clip.losses, loss}, 1);
  policy_loss::backward(exec, in, options, {.loss = clip.by_token_loss, .entropy = clip.by_entropy}, gradients, space);
}

}  // namespace tessera_examples
