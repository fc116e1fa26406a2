// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How well a model predicts a text: Cut Cross-Entropy's losses and predictions. No logits are in memory.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>

#include "language_model.hpp"
#include "transformer.hpp"

namespace tessera_examples {

/// What a model says of the next tokens of a text.
struct text_scores {
  std::vector<float> losses;              ///< of each token, in nats
  std::vector<std::int32_t> predictions;  ///< the likeliest next token

  [[nodiscard]] double perplexity() const {
    double const sum = std::accumulate(losses.begin(), losses.end(), 0.0);
    return std::exp(sum / static_cast<double>(losses.size()));
  }
  /// The part of the tokens for which both models have the same likeliest next token.
  [[nodiscard]] double agreement(text_scores const& other) const {
    std::int64_t same = 0;
    for (std::size_t i = 0; i < predictions.size(); ++i) {
      same += predictions[i] == other.predictions[i] ? 1 : 0;
    }
    return static_cast<double>(same) / static_cast<double>(predictions.size());
  }
};

/// Scores the hidden states of tokens by the tokens that follow each of them.
inline text_scores score_text(tessera::cpu const& exec, language_model const& model, hidden_states const& hidden,
                              std::span<std::int32_t const> next) {
  using loss = tessera::cut_cross_entropy_of<bfloat16, tessera::loss_statistics>;
  tessera::linear_loss_options const options{.reduction = tessera::loss_reduction::none};
  auto const plan = loss::plan_forward(exec, {hidden.rows, model.embedding.rows, hidden.columns}, options);
  tessera::buffer<std::byte> memory(exec, plan.bytes());
  text_scores scores;
  scores.losses.resize(next.size());
  scores.predictions.resize(next.size());
  loss::inputs<std::int32_t> const inputs{hidden.view(), model.embedding.view(), next};
  loss::forward(exec, inputs, options, {.loss = scores.losses, .prediction = scores.predictions},
                tessera::workspace(plan, memory));
  exec.wait();
  return scores;
}

}  // namespace tessera_examples
