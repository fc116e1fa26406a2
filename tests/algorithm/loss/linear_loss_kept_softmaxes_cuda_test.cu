// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstdint>

#include <tessera/cut_cross_entropy.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"
#include "support/row_states.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using lse = lse_reducer<float>;
using with_prediction = paired_reducer<lse, arg_max_reducer<float>>;
using with_top_four = paired_reducer<lse, top_four>;

}  // namespace

TEST_CASE("where no entropy can have a gradient softmaxes are kept on a GPU, whatever the reducer", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!is_hopper()) {
    TESSERA_SKIP("no device of sm_90, whose program alone keeps softmaxes");
  }
  auto problem = make_loss_problem<bfloat16>(300, 2000, 64);
  problem.options.workspace_budget = std::int64_t{64} << 20;
  linear_loss_shape const shape{300, 2000, 64};
  tessera::cuda const exec;
  using alias = exact_cross_entropy;
  using large = paired_reducer<lse, many_sums<99>>;
  std::int64_t const softmaxes = std::int64_t{300} * 2000 * 2;
  auto const planned = [&](auto loss) { return decltype(loss)::plan_backward(exec, shape, problem.options).bytes(); };
  auto const keeps = [&](auto loss) {
    auto const plan = decltype(loss)::plan_backward(exec, shape, problem.options);
    return std::any_of(plan.entries().begin(), plan.entries().end(),
                       [](auto const& region) { return region.name == "softmaxes" && region.bytes > 0; });
  };
  CHECK(planned(alias{}) >= softmaxes);
  CHECK(keeps(alias{}));
  CHECK(keeps(exact_cross_entropy_of<bfloat16, with_prediction>{}));
  CHECK(keeps(exact_cross_entropy_of<bfloat16, with_top_four>{}));
  CHECK(!keeps(exact_cross_entropy_of<bfloat16, loss_statistics>{}));
  CHECK(!keeps(exact_cross_entropy_of<bfloat16, large>{}));  // whose forward pass is the portable one
  check_on_device<exact_cross_entropy_of<bfloat16, with_prediction>, bfloat16>(problem, 1e-5, 4e-3);
  check_on_device<exact_cross_entropy_of<bfloat16, with_top_four>, bfloat16>(problem, 1e-5, 4e-3);
  check_on_device<exact_cross_entropy_of<bfloat16, loss_statistics>, bfloat16>(problem, 1e-5, 4e-3);
  check_on_device<exact_cross_entropy_of<bfloat16, large>, bfloat16>(problem, 1e-5, 4e-3);
}
