// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Soft targets by the programs of GPUs without wgmma, on whatever GPU there is.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithm/loss/soft_target_loss_on_device.cuh"
#include "algorithm/loss/strict_executor.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

constexpr double rounded = 4e-3;  // gradients by logits in bf16

}  // namespace

TEST_CASE("rings take soft targets of awkward extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (auto const& extents : {std::vector<std::int64_t>{1, 2, 8, 1},
                              {7, 129, 64, 0},
                              {127, 128, 72, 3},
                              {129, 255, 56, 5},
                              {300, 1000, 200, 33},
                              {513, 3, 8, 7}}) {
    auto p = make_target_problem<bfloat16>(extents[0], extents[1], extents[2], extents[3], true);
    check_targets_on_device<exact_cross_entropy, float>(strict<ring_executor>(), p, rounded);
  }
}

TEST_CASE("rings take soft targets with options, in several parts", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_target_problem<bfloat16, std::int32_t>(260, 3001, 136, 8, true, -0.4);
  p.base.options = {.reduction = loss_reduction::none, .softcap = 4.0F, .temperature = 0.8F, .z_factor = 1e-2F};
  p.base.options.workspace_budget = std::int64_t{2} << 20;
  check_targets_on_device<exact_cross_entropy, float>(strict<ring_executor>(), p, rounded, true,
                                                      upstream_of_targets(260, false, false));
}

TEST_CASE("a filtered pass by rings keeps the entries of soft targets", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const budget : {std::int64_t{0}, std::int64_t{2} << 20}) {
    auto p = problem_with_few_blocks<bfloat16>(700, 2500, 72, 5);
    p.base.options.workspace_budget = budget;
    check_targets_on_device<cut_cross_entropy, bfloat16>(strict<ring_executor>(), p, 6e-3);
  }
}

TEST_CASE("rings take soft targets with kept softmaxes", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_target_problem<bfloat16, std::int32_t>(260, 3001, 136, 8, true, -0.4);
  p.base.options = {.reduction = loss_reduction::none, .softcap = 4.0F, .temperature = 0.8F, .z_factor = 1e-2F};
  p.base.options.workspace_budget = std::int64_t{64} << 20;
  check_targets_on_device<exact_cross_entropy, float>(strict<ring_executor>(), p, rounded, true,
                                                      upstream_of_targets(260, false, false));
}
