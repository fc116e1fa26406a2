// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs the programs of papers on the CPU and compares them with references in double. See README.md.
///
///     papers [NAME...]
///
/// Without names it runs all. Exit codes: 0: all results are right; 1: wrong usage; 3: a result is wrong.
#include <algorithm>
#include <string>
#include <vector>

#include "distillation_loss_trial.hpp"
#include "eight_bit_adam_trial.hpp"
#include "float8_attention_trial.hpp"
#include "group_scaled_linear_trial.hpp"
#include "kivi_decode_trial.hpp"
#include "kvtc_trial.hpp"
#include "policy_gradient_loss_trial.hpp"
#include "preference_loss_trial.hpp"
#include "quest_selection_trial.hpp"
#include "skew_distillation_trial.hpp"
#include "softmax_top_k_trial.hpp"
#include "weight_only_linear_trial.hpp"

namespace tessera_examples {
namespace {

/// Runs the trials that were asked for, or all.
template <class... Trials>
int run_papers(std::vector<std::string> const& names) {
  return run_example("papers", [&] {
    for (std::string const& name : names) {
      require(exit_code::usage, ((name == Trials::name) || ...), "there is no paper ", shown(name));
    }
    auto const is_asked = [&](char const* name) {
      return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
    };
    ((is_asked(Trials::name) ? run_trial<Trials>() : void()), ...);
  });
}

}  // namespace
}  // namespace tessera_examples

int main(int count, char** words) {
  using namespace tessera_examples;
  return run_papers<kivi_decode_trial, weight_only_linear_trial, quest_selection_trial, group_scaled_linear_trial,
                    distillation_loss_trial, skew_distillation_trial, policy_gradient_loss_trial, preference_loss_trial,
                    softmax_top_k_trial, float8_attention_trial, eight_bit_adam_trial, kvtc_trial>(
      {words + 1, words + count});
}
