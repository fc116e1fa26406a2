// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <vector>

#include <tessera/exec/cuda.cuh>

#include "../../examples/papers/distillation_loss_trial.hpp"
#include "../../examples/papers/eight_bit_adam_trial.hpp"
#include "../../examples/papers/float8_attention_trial.hpp"
#include "../../examples/papers/group_scaled_linear_trial.hpp"
#include "../../examples/papers/kivi_decode_trial.hpp"
#include "../../examples/papers/kvtc_trial.hpp"
#include "../../examples/papers/policy_gradient_loss_trial.hpp"
#include "../../examples/papers/preference_loss_trial.hpp"
#include "../../examples/papers/quest_selection_trial.hpp"
#include "../../examples/papers/skew_distillation_trial.hpp"
#include "../../examples/papers/softmax_top_k_trial.hpp"
#include "../../examples/papers/weight_only_linear_trial.hpp"
#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;

namespace {

template <class Trial>
void check_on_gpu(std::vector<typename Trial::extents> const& list) {
  cuda const exec;
  for (auto const& extents : list) {
    tessera_examples::paper_finding const found = Trial::run(exec, extents);
    CAPTURE(Trial::name, found.of);
    CHECK(found.error <= Trial::bound);
  }
}

}  // namespace

TEST_CASE("the programs of papers are right on a GPU whatever the extents", "[cuda]") {
  using namespace tessera_examples;
  TESSERA_NEEDS_CUDA();
  check_on_gpu<kivi_decode_trial>({{1, 32, 0}, {2, 96, 1}, {1, 0, 7}, {1, 128, 127}, {9, 1184, 129}});
  check_on_gpu<weight_only_linear_trial>(
      {{1, 1, 2}, {7, 65, 128}, {64, 63, 130}, {1, 512, 1024}, {129, 512, 1024}, {1536, 300, 256}});
  check_on_gpu<quest_selection_trial>({{1, 1, 1}, {1, 17, 1}, {2, 63, 128}, {3, 5000, 70}});
  check_on_gpu<group_scaled_linear_trial>({{1, 1, 1}, {7, 128, 128}, {65, 129, 257}, {129, 256, 512}});
  check_on_gpu<distillation_loss_trial>({{1, 1, 1}, {2, 7, 3}, {3, 513, 65}, {9, 4096, 128}});
  check_on_gpu<skew_distillation_trial>({{1, 1, 1, 1}, {9, 513, 65, 16}, {64, 1000, 128, 64}});
  check_on_gpu<policy_gradient_loss_trial>(
      {{1, 1, 0, 1, 1}, {3, 4, 2, 1, 3}, {2, 130, 1, 129, 65}, {4, 90, 20, 1000, 128}});
  check_on_gpu<preference_loss_trial>(
      {{{1, 1, 0, 1, 1}}, {{3, 4, 2, 1, 3}}, {{1, 300, 1, 129, 65}}, {{2, 90, 20, 1000, 128}}});
  check_on_gpu<softmax_top_k_trial>({{1, 1}, {7, 8}, {2, 7}, {3, 8193}, {2, 40000}});
  check_on_gpu<float8_attention_trial>({{1, 1, 16}, {1, 129, 64}, {2, 600, 128}});
  check_on_gpu<eight_bit_adam_trial>({{0, 2}, {4, 1}, {2044, 2}, {2048, 1}, {70000, 20}});
  check_on_gpu<kvtc_trial>({{1, true}, {257, false}, {3000, true}});
}
