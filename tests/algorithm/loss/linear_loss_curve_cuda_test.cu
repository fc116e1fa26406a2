// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/explain.hpp>

#include "algorithm/loss/linear_loss_map_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class Map>
explanation explain_training(Map const& map) {
  using loss = cut_cross_entropy_of<bfloat16, lse_reducer<float>, Map>;
  auto* const nowhere = reinterpret_cast<bfloat16*>(std::uintptr_t{1} << 30);
  auto* const number = reinterpret_cast<float*>(std::uintptr_t{1} << 30);
  return explain(tessera::cuda::described({}), [&](auto const& dry) {
    linear_loss_shape const shape{8192, 128256, 4096};
    auto const plan = loss::plan_backward(dry, shape);
    workspace const space(plan, array_view<std::byte>(reinterpret_cast<std::byte*>(nowhere), plan.bytes()));
    auto* const labels = reinterpret_cast<std::int64_t const*>(nowhere);
    typename loss::template inputs<std::int64_t> const in{.hidden = {nowhere, {shape.tokens, shape.channels}},
                                                          .classifier = {nowhere, {shape.vocabulary, shape.channels}},
                                                          .labels = {labels, shape.tokens},
                                                          .map = map};
    loss::forward(dry, in, {}, {.loss = {number, 1}}, space);
    linear_loss_gradients<bfloat16> const out{{nowhere, {shape.tokens, shape.channels}},
                                              {nowhere, {shape.vocabulary, shape.channels}}};
    loss::backward(dry, in, {}, {}, out, space);
  });
}

}  // namespace

TEST_CASE("losses with a reader's map of logits run in the programs for sm_90a", "[cuda]") {
#if __CUDA_ARCH_LIST__ == 900
  CHECK(explain_training(curved{}).is_fast());
  CHECK(explain_training(curved{}).text() == explain_training(identity_logits{}).text());
#endif
}

TEST_CASE("losses and gradients of logits with a curve for each token and entry are right on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_mapped_losses<bfloat16>(curved{}, in_double(curved{}), 4e-3);
}

TEST_CASE("smoothing, z-loss and entropies of mapped logits are right on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  using loss = exact_cross_entropy_of<bfloat16, loss_statistics, curved>;
  auto problem = make_loss_problem<bfloat16>(300, 1000, 72, true);
  problem.map = in_double(curved{});
  problem.options = {.reduction = loss_reduction::none, .smoothing = 0.1F, .z_factor = 1e-2F};
  upstream_samples upstream;
  for (std::uint64_t token = 0; token < 300; ++token) {
    upstream.entropy.push_back(testing::uniform{-1.0, 1.0}.value(42, token));
  }
  auto const found = run_on_device<loss, float>(exec, problem, true, upstream, curved{});
  CHECK(wrong_losses(problem, found, 2e-5) == 0);
  CHECK(worst_distance(gradient_results<float>{found.loss, found.hidden, found.classifier, found.bias},
                       reference_gradient(problem, upstream)) <= 6e-3);
}

TEST_CASE("entries that the bias masks are not given to the map on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto problem = make_loss_problem<bfloat16>(300, 1000, 72, true);
  for (std::size_t entry = 0; entry < problem.bias.size(); entry += 2) {
    problem.bias[entry] = store<bfloat16>(-std::numeric_limits<float>::infinity());
  }
  for (auto& label : problem.labels) {
    label = label < 0 ? label : label / 2 * 2 + 1;
  }
  problem.map = in_double(curved{});
  check_mapped_passes<exact_mapped_loss<bfloat16, curved>>(problem, curved{}, 4e-3);
}
