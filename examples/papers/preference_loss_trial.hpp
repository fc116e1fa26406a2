// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs preference_loss and compares it with the definition in double.
#pragma once

#include "../support/classifier_trial.hpp"
#include "preference_loss.hpp"

namespace tessera_examples {

struct preference_loss_trial {
  /// Of which `sequences` are pairs.
  struct extents : sequence_extents {};
  static constexpr char const* name = "preference_loss";
  static constexpr extents usual{{3, 9, 2, 1003, 24}},
      large[] = {{{4, 1024, 0, 128256, 4096}}, {{4, 1024, 0, 256000, 2304}}};
  static constexpr double bound = 2e-2;  ///< gradients by logits are rounded to bf16, and results

  template <class Executor>
  static paper_finding run(Executor const& exec, extents const& of, preference_objective const& objective = {}) {
    classifier_trial trial(exec, {2 * of.sequences, of.length, of.padding, of.vocabulary, of.channels});
    std::int64_t const tokens = 2 * of.tokens(), pairs = of.sequences;
    auto losses = poisoned<float>(exec, tokens), by_loss = poisoned<float>(exec, tokens);
    auto margins = poisoned<float>(exec, pairs), parts = poisoned<float>(exec, pairs), loss = poisoned<float>(exec, 1);
    buffer<float> reference(exec, tokens);
    auto const plan = exact_cross_entropy::plan_backward(exec, {tokens, of.vocabulary, of.channels}, trial.options);
    buffer<std::byte> memory(exec, plan.bytes());
    workspace const space(plan, memory);
    exact_cross_entropy::inputs<std::int32_t> const in{trial.states(), trial.classifier(), trial.labels};
    exact_cross_entropy::forward(exec, in, trial.options, {.loss = losses}, space);
    auto const model = moved(here(exec, losses, 0, tokens), of.length);
    exec.copy(model, reference);
    prefer const pairs_of{{trial.labels, trial.options}, objective, losses, reference, margins, parts, by_loss};
    paper_finding found{join(pairs, " pairs, ", of.length, " tokens each, ", of.vocabulary, " x ", of.channels),
                        seconds_of(exec, [&] { preference_loss(exec, in, pairs_of, loss, trial.gradients(), space); }),
                        0};
    found.flops = 6 * static_cast<double>(tokens) * static_cast<double>(of.vocabulary * of.channels);
    auto const token_losses = here(exec, losses, 0, tokens);
    definition const expected(trial, objective, token_losses, model);
    found.error =
        classifier_comparison(exec, trial)
            .error(exec, token_losses, nullptr, expected.by_loss, std::vector<double>(expected.by_loss.size()));
    largest_error of_loss, of_margins;
    of_loss.add(static_cast<double>(here(exec, loss, 0, 1)[0]), expected.loss);
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      of_margins.add(static_cast<double>(here(exec, margins, pair, 1)[0]), expected.margins[pair]);
    }
    bool const are_right = of_loss.relative() <= 1e-4 && of_margins.relative() <= 1e-4;
    found.error = are_right ? found.error : HUGE_VAL;
    return found;
  }

 private:
  /// A reference's log-probabilities: others than those of losses, by more in some sequences than in others.
  static std::vector<float> moved(std::vector<float> const& losses, std::int64_t length) {
    std::vector<float> result;
    for (float const loss : losses) {
      auto const sequence = static_cast<std::uint64_t>(static_cast<std::int64_t>(result.size()) / length);
      float const of_all = testing::gauss{.sigma = 10}.value(7, sequence) / static_cast<float>(length);
      result.push_back(-loss + of_all + testing::gauss{.sigma = 0.3}.value(8, result.size()));
    }
    return result;
  }

  /// The loss, and its gradients by tokens' losses.
  struct definition {
    double loss = 0;
    std::vector<double> margins, by_loss;

    definition(classifier_trial const& trial, preference_objective const& objective, std::vector<float> const& losses,
               std::vector<float> const& reference)
        : by_loss(losses.size()) {
      std::int64_t const length = trial.of.length, pairs = trial.of.sequences / 2;
      double const beta{objective.beta}, smoothing{objective.smoothing};
      for (std::int64_t pair = 0; pair < pairs; ++pair) {
        auto const each = [&](auto const& take) {
          for (std::int64_t t = 0; t < length; ++t) {
            for (std::int64_t const token : {pair * length + t, (pairs + pair) * length + t}) {
              if (trial.label(token) >= 0) {
                take(static_cast<std::size_t>(token), token < pairs * length ? beta : -beta);
              }
            }
          }
        };
        double margin = 0;
        each([&](std::size_t i, double sign) { margin -= sign * (double{losses[i]} + double{reference[i]}); });
        double const count = static_cast<double>(pairs);
        loss += ((1 - smoothing) * std::log1p(std::exp(-margin)) + smoothing * std::log1p(std::exp(margin))) / count;
        double const slope = (1 / (1 + std::exp(-margin)) - (1 - smoothing)) / count;  // by the margin
        each([&, this](std::size_t i, double sign) { by_loss[i] = -slope * sign; });
        margins.push_back(margin);
      }
    }
  };
};

}  // namespace tessera_examples
