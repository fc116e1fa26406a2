// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "support/loss_gradient_reference.hpp"
#include "support/loss_runs.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using half_loss = loss_on_small_tiles<float16>;
using half_statistics = linear_loss<gemm_tile<float16, shape<64, 64, 16>>,
                                    paired_reducer<entropy_reducer<float>, sum_reducer<float>>, gradient_filter<0>>;

constexpr std::int64_t tokens = 150;

loss_problem<float16> half_problem(loss_reduction reduction = loss_reduction::none) {
  auto problem = make_loss_problem<float16>(tokens, 500, 40);
  problem.options.reduction = reduction;
  return problem;
}

/// A value for each token, of both signs and from size to 2^octaves * size.
std::vector<float> factors_of(float size, double octaves) {
  std::vector<float> factors;
  for (std::uint64_t token = 0; token < tokens; ++token) {
    double const power = static_cast<double>(testing::uniform{0.0, octaves}.value(21, token));
    factors.push_back((token % 2 == 0 ? size : -size) * static_cast<float>(std::exp2(power)));
  }
  return factors;
}

template <class Loss = half_loss>
double worst_of(loss_problem<float16> const& problem, upstream_samples const& upstream) {
  auto const found = run_gradients<Loss, float>(cpu{.threads = 2}, problem, upstream);
  return worst_distance(found, reference_gradient(problem, upstream));
}

/// The largest relative distance of a row of hidden gradients.
double worst_row(std::vector<float> const& found, std::vector<double> const& expected, std::size_t channels) {
  double worst = 0;
  for (std::size_t first = 0; first < expected.size(); first += channels) {
    double apart = 0;
    double length = 0;
    for (std::size_t i = first; i < first + channels; ++i) {
      apart += std::pow(static_cast<double>(found[i]) - expected[i], 2);
      length += expected[i] * expected[i];
    }
    double const distance = apart == 0 ? 0 : std::sqrt(apart / length);
    worst = std::isnan(worst) || distance <= worst ? worst : distance;
  }
  return worst;
}

}  // namespace

TEST_CASE("gradients of losses of tokens in fp16 are as exact as those of their sum, whatever their factors",
          "[host][long][threads]") {
  double const reduced = worst_of(half_problem(loss_reduction::sum), {});
  CAPTURE(reduced);
  CHECK(reduced < 2e-4);
  for (float const size : {1e-30F, 1e-8F, 1.0F / 8192, 1.0F, 1e4F, 1e7F, 1e25F}) {
    CAPTURE(size);
    CHECK(worst_of(half_problem(), {factors_of(size, 0), {}, {}}) < 1.2 * reduced);
    CHECK(worst_of(half_problem(), {factors_of(size, 12), {}, {}}) < 2 * reduced);
  }
}

TEST_CASE("gradients of log-sum-exps and entropies in fp16 are right, whatever their size", "[host][long][threads]") {
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::sum, loss_reduction::mean}) {
    for (float const size : {1e-12F, 1.0F / 8192, 1.0F, 1e6F}) {
      CAPTURE(size);
      auto problem = half_problem(reduction);
      problem.options.temperature = 0.25F;
      problem.options.smoothing = 0.1F;
      problem.options.z_factor = 1e-2F;
      upstream_samples upstream{factors_of(size, 1), factors_of(size, 2), factors_of(-size, 3)};
      upstream.loss.resize(reduction == loss_reduction::none ? tokens : 1);
      CHECK(worst_of<half_statistics>(problem, upstream) < 1e-3);
    }
  }
}

TEST_CASE("in fp16 the gradient of each token is right, also of one that counts little", "[host][threads][slow]") {
  cpu const exec{.threads = 2};
  auto problem = half_problem();
  problem.labels.assign(tokens, 7);
  upstream_samples const upstream{factors_of(1e-6F, 20), {}, {}};
  auto const found = run_gradients<half_loss, float>(exec, problem, upstream);
  CHECK(worst_row(found.hidden, reference_gradient(problem, upstream).hidden, 40) < 1e-3);
}

TEST_CASE("a factor that is not finite spoils the gradients of its own token and of the classifier alone",
          "[host][threads]") {
  auto problem = half_problem();
  problem.labels.assign(tokens, 7);
  upstream_samples upstream{factors_of(1e-6F, 1), {}, {}};
  auto expected = reference_gradient(problem, upstream);
  for (float const bad : {infinity, std::numeric_limits<float>::quiet_NaN()}) {
    upstream.loss[70] = bad;
    auto found = run_gradients<half_loss, float>(cpu{.threads = 2}, problem, upstream);
    for (std::size_t channel = 0; channel < 40; ++channel) {
      CHECK(!std::isfinite(found.hidden[70 * 40 + channel]));
      found.hidden[70 * 40 + channel] = 0;
      expected.hidden[70 * 40 + channel] = 0;
    }
    CHECK(relative_distance(found.hidden, expected.hidden) < 4e-4);
  }
}

TEST_CASE("a gradient by a logit stays within the range of fp16", "[host]") {
  using scale = scale_loss_gradients;
  CHECK(scale::divisor_for(0.0F) == 1.0F);
  CHECK(scale::divisor_for(1.0F) == 1.0F / 32768);
  for (float const bound : {1e-44F, 1e-38F, 3e-5F, 0.7F, 1.0F, 12345.0F, 3e38F, infinity}) {
    float const divisor = scale::divisor_for(bound);
    CAPTURE(bound, divisor);
    CHECK(std::isnormal(divisor));
    CHECK((bound == infinity || bound / divisor <= 65504.0F));
    CHECK((bound < 1e-33F || bound / divisor >= 16384.0F));
  }
}

TEST_CASE("the programs that scale gradients keep the rules for programs", "[host]") {
  auto problem = make_loss_problem<float16>(20, 70, 16);
  problem.options.reduction = loss_reduction::none;
  upstream_samples const upstream{std::vector<float>(20, 1e-6F), {}, {}};
  auto const one = run_gradients<half_loss, float>(cpu{.threads = 1}, problem, upstream);
  auto const other = run_gradients<half_loss, float>(testing::adversary{.seed = 3}, problem, upstream);
  CHECK(one.hidden == other.hidden);
  CHECK(one.classifier == other.classifier);
  CHECK(one.bias == other.bias);
}
