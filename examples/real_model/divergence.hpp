// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How near a changed model is to the exact one, by linear_distillation. No logits are in memory.
#pragma once

#include <cstddef>

#include <tessera/algorithm/loss/linear_distillation.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/map/forward_kl.hpp>

#include "language_model.hpp"
#include "transformer.hpp"

namespace tessera_examples {

/// The mean Kullback-Leibler divergence, in nats a token, of a changed model's next tokens from the exact model's.
inline double divergence_from(tessera::cpu const& exec, language_model const& exact, hidden_states const& exact_hidden,
                              language_model const& changed, hidden_states const& hidden) {
  using divergence = tessera::linear_distillation<bfloat16, tessera::forward_kl>;
  tessera::distillation_options const options{.workspace_budget = 64 << 20};
  auto const plan = divergence::plan_forward(
      exec, {hidden.rows, changed.embedding.rows, hidden.columns, exact_hidden.columns}, options);
  tessera::buffer<std::byte> memory(exec, plan.bytes());
  float mean = 0;
  divergence::forward(exec, {hidden.view(), changed.embedding.view(), exact_hidden.view(), exact.embedding.view()},
                      options, {.loss = {&mean, 1}}, tessera::workspace(plan, memory));
  exec.wait();
  return static_cast<double>(mean);
}

}  // namespace tessera_examples
