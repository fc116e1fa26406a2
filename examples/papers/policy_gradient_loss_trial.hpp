// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs policy_gradient_loss and compares it with the definition in double.
#pragma once

#include "../support/classifier_trial.hpp"
#include "policy_gradient_definition.hpp"
#include "policy_gradient_loss.hpp"

namespace tessera_examples {

struct policy_gradient_loss_trial {
  using extents = sequence_extents;
  static constexpr char const* name = "policy_gradient_loss";
  static constexpr extents usual{5, 9, 2, 1003, 24}, large[] = {{8, 1024, 0, 128256, 4096}, {8, 1024, 0, 256000, 2304}};
  static constexpr double bound = 2e-2;  ///< gradients by logits are rounded to bf16, and results
  static constexpr policy_objective both{.clip_high = 0.28F, .kl_factor = 0.04F, .entropy_factor = 0.1F};

  template <class Executor>
  static paper_finding run(Executor const& exec, extents of, policy_objective const& objective = both) {
    classifier_trial trial(exec, of);
    std::int64_t const tokens = of.tokens();
    auto losses = poisoned<float>(exec, tokens), entropies = poisoned<float>(exec, tokens);
    auto by_loss = poisoned<float>(exec, tokens), by_entropy = poisoned<float>(exec, tokens);
    auto parts = poisoned<float>(exec, of.sequences), loss = poisoned<float>(exec, 1);
    buffer<std::int64_t> labelled(exec, 1);
    buffer<float> old(exec, tokens), reference(exec, tokens);
    auto const advantages = filled<float>(exec, testing::gauss{}, 4, of.sequences);
    auto const plan = policy_loss::plan_backward(exec, {tokens, of.vocabulary, of.channels}, trial.options);
    buffer<std::byte> memory(exec, plan.bytes());
    workspace const space(plan, memory);
    policy_loss::inputs<std::int32_t> const in{trial.states(), trial.classifier(), trial.labels};
    policy_loss::forward(exec, in, trial.options, {.loss = losses}, space);
    auto const earlier = moved(here(exec, losses, 0, tokens), 5), model = moved(here(exec, losses, 0, tokens), 6);
    exec.copy(earlier, old);
    exec.copy(model, reference);
    clip_policy const clip{{trial.labels, trial.options},
                           objective,
                           losses,
                           entropies,
                           labelled,
                           old,
                           objective.kl_factor == 0 ? array_view<float const>{} : reference,
                           {advantages.data(), {of.sequences, of.length}, {1, 0}},
                           parts,
                           by_loss,
                           by_entropy};
    paper_finding found{join(of.sequences, " x ", of.length, " tokens, ", of.vocabulary, " x ", of.channels),
                        seconds_of(exec, [&] { policy_gradient_loss(exec, in, clip, loss, trial.gradients(), space); }),
                        0};
    found.flops = 6 * static_cast<double>(tokens) * static_cast<double>(of.vocabulary * of.channels);
    policy_gradient_definition const expected(trial, objective, here(exec, losses, 0, tokens),
                                              here(exec, entropies, 0, tokens), earlier, model,
                                              here(exec, advantages, 0, of.sequences));
    auto const token_entropies = here(exec, entropies, 0, tokens);
    found.error =
        classifier_comparison(exec, trial)
            .error(exec, here(exec, losses, 0, tokens), &token_entropies, expected.by_loss, expected.by_entropy);
    double const apart = std::fabs(static_cast<double>(here(exec, loss, 0, 1)[0]) - expected.loss);
    found.error = apart <= 1e-5 * expected.magnitude ? found.error : HUGE_VAL;  // losses are in fp32
    return found;
  }

 private:
  /// Other log-probabilities than those of losses, by at most 0.35; no ratio is near where it is clipped.
  static std::vector<float> moved(std::vector<float> const& losses, std::uint64_t seed) {
    std::vector<float> result;
    for (float const loss : losses) {
      auto const step = static_cast<int>(mix_bits(seed, result.size()) % 8) - 4;  // -4 to 3
      result.push_back(-loss + 0.05F + 0.1F * static_cast<float>(step));
    }
    return result;
  }
};

}  // namespace tessera_examples
