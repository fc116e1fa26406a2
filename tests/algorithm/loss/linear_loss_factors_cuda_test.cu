// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

using half_loss = exact_cross_entropy_of<float16>;

/// A value for each token, of both signs and from size to 2^octaves * size.
std::vector<float> factors_of(std::int64_t tokens, float size, double octaves) {
  std::vector<float> factors;
  for (std::uint64_t token = 0; token < static_cast<std::uint64_t>(tokens); ++token) {
    double const power = static_cast<double>(testing::uniform{0.0, octaves}.value(21, token));
    factors.push_back((token % 2 == 0 ? size : -size) * static_cast<float>(std::exp2(power)));
  }
  return factors;
}

/// The largest of the three gradients' distances.
template <class Loss = half_loss>
double worst_of(loss_problem<float16> const& problem, upstream_samples const& upstream) {
  tessera::cuda const exec;
  auto const found = run_on_device<Loss, float>(exec, problem, true, upstream);
  return worst_distance(gradient_results<float>{found.loss, found.hidden, found.classifier, found.bias},
                        reference_gradient(problem, upstream));
}

}  // namespace

TEST_CASE("gradients of losses of tokens in fp16 on a GPU are as exact as those of their sum", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {72, 63}) {                                   // by wgmma, portably
    for (std::int64_t const budget : {std::int64_t{0}, std::int64_t{64} << 20}) {  // and with softmaxes kept
      auto problem = make_loss_problem<float16>(300, 1000, channels);
      problem.options.workspace_budget = budget;
      problem.options.reduction = loss_reduction::sum;
      double const reduced = worst_of(problem, {});
      CAPTURE(channels, budget, reduced);
      CHECK(reduced < 8e-4);
      problem.options.reduction = loss_reduction::none;
      for (float const size : {1e-30F, 1e-8F, 1.0F / 8192, 1.0F, 1e7F, 1e25F}) {
        CAPTURE(size);
        CHECK(worst_of(problem, {factors_of(300, size, 0), {}, {}}) < 1.2 * reduced);
        CHECK(worst_of(problem, {factors_of(300, size, 12), {}, {}}) < 2 * reduced);
      }
    }
  }
}

TEST_CASE("gradients of log-sum-exps and entropies in fp16 on a GPU are right, whatever their size", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using loss = exact_cross_entropy_of<float16, loss_statistics>;
  for (float const size : {1e-12F, 1.0F / 8192, 1e6F}) {
    CAPTURE(size);
    auto problem = make_loss_problem<float16>(300, 1000, 72);
    problem.options.reduction = loss_reduction::none;
    problem.options.temperature = 0.5F;
    problem.options.z_factor = 1e-2F;
    upstream_samples const upstream{factors_of(300, size, 1), factors_of(300, size, 2), factors_of(300, -size, 3)};
    CHECK(worst_of<loss>(problem, upstream) < 1e-3);
  }
}

TEST_CASE("the filter of fp16 on a GPU keeps what is 2^-15 or more", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  // Softmaxes of about 2^-13.3 in all blocks: a filter at 2^-12 would leave out those without a label.
  auto problem = make_loss_problem<float16>(128, 10240, 64);
  for (float16& value : problem.classifier) {
    value = store<float16>(0.02F * static_cast<float>(load(value)));
  }
  tessera::cuda const exec;
  auto const found = run_on_device<cut_cross_entropy_of<float16>, float>(exec, problem, false);
  auto const expected = reference_gradient(problem);
  CHECK(relative_distance(found.hidden, expected.hidden) < 1e-3);
  CHECK(relative_distance(found.classifier, expected.classifier) < 1e-3);
}

TEST_CASE("gradients in fp16 of any size are added to old ones on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {72, 63}) {  // by wgmma, portably
    for (std::int64_t const budget : {std::int64_t{1} << 20, std::int64_t{0}, std::int64_t{64} << 20}) {
      auto problem = make_loss_problem<float16>(300, 3000, channels, true);
      problem.options.workspace_budget = budget;  // parts, a whole, softmaxes kept
      for (float const size : {1e-30F, 1e-8F, 1.0F, 1e7F, 1e25F}) {
        CAPTURE(channels, budget, size);
        problem.options.reduction = loss_reduction::sum;
        check_added_on_device<half_loss>(problem, 8e-4, true, {{size}, {}, {}});
        problem.options.reduction = loss_reduction::none;
        check_added_on_device<half_loss>(problem, 2e-3, true, {factors_of(300, size, 12), {}, {}});
      }
    }
  }
}
