// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "support/loss_gradient_reference.hpp"
#include "support/loss_maps.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

constexpr std::int64_t tokens = 70;
constexpr std::int64_t vocabulary = 150;

template <class T, class Map, class Statistics = lse_reducer<float>>
using mapped_loss =
    linear_loss<gemm_tile<T, shape<64, 64, 32 / static_cast<int>(sizeof(T))>>, Statistics, gradient_filter<0>, Map>;

template <class T>
loss_problem<T> problem_of(reference_map const& map) {
  auto problem = make_loss_problem<T>(tokens, vocabulary, 24, true);
  problem.map = map;
  return problem;
}

upstream_samples upstream_of(loss_reduction reduction) {
  upstream_samples upstream;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(tokens); ++i) {
    upstream.log_sum_exp.push_back(testing::uniform{-1.0, 1.0}.value(41, i));
    upstream.entropy.push_back(testing::uniform{-1.0, 1.0}.value(42, i));
    if (i == 0 || reduction == loss_reduction::none) {
      upstream.loss.push_back(testing::uniform{0.5, 1.5}.value(43, i));
    }
  }
  return upstream;
}

/// Compares losses, statistics and gradients with the reference, for all that options can ask for.
template <class T, class Map>
void check_map(Map const& map, reference_map const& reference, double tolerance, double gradient_tolerance) {
  using loss = mapped_loss<T, Map, loss_statistics>;
  cpu const exec{.threads = 2};
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::mean}) {
    for (float const softcap : {0.0F, 5.0F}) {
      CAPTURE(static_cast<int>(reduction), softcap);
      auto problem = problem_of<T>(reference);
      problem.options = {.reduction = reduction,
                         .shift = 1,
                         .sequence = tokens / 2,
                         .softcap = softcap,
                         .temperature = 1.25F,
                         .smoothing = 0.1F,
                         .z_factor = 1e-2F};
      auto const found = run_loss<loss, typename loss::reducer_type>(exec, problem, map);
      auto const expected = reference_loss(problem);
      for (std::size_t i = 0; i < expected.tokens.size(); ++i) {
        token_reference const& token = expected.tokens[i];
        CHECK(static_cast<double>(found.log_sum_exp[i]) == Approx(token.log_sum_exp).epsilon(tolerance));
        CHECK(static_cast<double>(found.log_probability[i]) == Approx(token.log_probability).epsilon(tolerance));
        CHECK(static_cast<double>(found.entropy[i]) == Approx(token.entropy).epsilon(tolerance));
        CHECK(found.prediction[i] == token.prediction);
      }
      auto const upstream = upstream_of(reduction);
      CHECK(worst_distance(run_gradients<loss, float>(exec, problem, upstream, map),
                           reference_gradient(problem, upstream)) <= gradient_tolerance);
    }
  }
}

template <class Loss, class Executor, class Map>
gradient_results<float> gradients_on(Executor const& exec, Map const& map) {
  return run_gradients<Loss, float>(exec, make_loss_problem<bfloat16>(tokens, vocabulary, 24, true), {}, map);
}

}  // namespace

TEST_CASE("losses and gradients of mapped logits are right: a prior for each entry", "[host][threads]") {
  auto const prior = log_prior_of(vocabulary);
  check_map<float>(adjusted_by_prior{prior, 0.75F}, in_double(prior, 0.75F), 2e-6, 1e-5);
  check_map<bfloat16>(adjusted_by_prior{prior, 0.75F}, in_double(prior, 0.75F), 1e-5, 4e-3);
}

TEST_CASE("losses and gradients of mapped logits are right: a temperature for each token", "[host][threads]") {
  auto const heat = heat_of(tokens, 3.0F);
  check_map<float>(heated_by_token{heat, 3.0F}, in_double(heat), 2e-6, 1e-5);
  check_map<float16>(heated_by_token{heat, 3.0F}, in_double(heat), 1e-5, 1e-3);
}

TEST_CASE("losses and gradients of mapped logits are right: a curve for each token and entry", "[host][threads]") {
  check_map<float>(curved{}, in_double(curved{}), 3e-6, 1e-5);
  check_map<bfloat16>(curved{}, in_double(curved{}), 1e-5, 4e-3);
}

TEST_CASE("the reference's gradients of mapped logits are slopes of the reference's loss", "[host]") {
  auto problem = make_loss_problem<float>(5, 17, 9, true);
  problem.map = in_double(curved{});
  problem.options.softcap = 4.0F;
  auto const expected = reference_gradient(problem);
  for (std::size_t i = 0; i < problem.hidden.size(); i += 3) {
    float const value = problem.hidden[i];
    problem.hidden[i] = value + 0.00390625F;
    double const above = static_cast<double>(problem.hidden[i]);
    double const high = reference_objective(problem, {});
    problem.hidden[i] = value - 0.00390625F;
    double const below = static_cast<double>(problem.hidden[i]);
    double const slope = (high - reference_objective(problem, {})) / (above - below);
    problem.hidden[i] = value;
    CHECK(std::fabs(slope - expected.hidden[i]) <= 1e-3 * (1 + std::fabs(expected.hidden[i])));
  }
}

TEST_CASE("slopes of 2^20 neither overflow nor vanish in fp16", "[host]") {
  std::vector<float> const heat(static_cast<std::size_t>(tokens), 0x1p20F);
  auto problem = problem_of<float16>(in_double(heat));
  problem.options.temperature = 0x1p20F;
  heated_by_token const map{heat, 0x1p20F};
  CHECK(worst_distance(run_gradients<mapped_loss<float16, heated_by_token>, float>(cpu{}, problem, {}, map),
                       reference_gradient(problem)) <= 1e-3);
}

TEST_CASE("entries that the bias masks stay masked, whatever the map would make of them", "[host]") {
  auto problem = make_loss_problem<float>(tokens, vocabulary, 24, true);
  for (std::size_t entry = 0; entry < problem.bias.size(); entry += 2) {
    problem.bias[entry] = -std::numeric_limits<float>::infinity();
  }
  for (auto& label : problem.labels) {
    label = label < 0 ? label : label / 2 * 2 + 1 < vocabulary ? label / 2 * 2 + 1 : 1;
  }
  problem.map = in_double(curved{});  // of an infinity the curve would make a NaN
  using loss = mapped_loss<float, curved>;
  auto const found = run_loss<loss, lse_reducer<float>>(cpu{}, problem, curved{});
  CHECK(static_cast<double>(found.loss[0]) == Approx(reference_loss(problem).total).epsilon(3e-6));
  CHECK(worst_distance(run_gradients<loss, float>(cpu{}, problem, {}, curved{}), reference_gradient(problem)) <= 1e-5);
}

TEST_CASE("mapped logits give the same bits for any number of threads and order of groups", "[host][threads]") {
  using loss = mapped_loss<bfloat16, curved>;
  auto const one = gradients_on<loss>(cpu{.threads = 1}, curved{});
  for (auto const& other :
       {gradients_on<loss>(cpu{.threads = 3}, curved{}), gradients_on<loss>(testing::adversary{.seed = 7}, curved{})}) {
    CHECK(one.loss == other.loss);
    CHECK(one.hidden == other.hidden);
    CHECK(one.classifier == other.classifier);
    CHECK(one.bias == other.bias);
  }
}

TEST_CASE("a backward pass with another map than the forward pass is refused", "[host]") {
  cpu const exec;
  auto const problem = make_loss_problem<float>(4, 6, 8);
  auto const plan = mapped_loss<float, curved>::plan_backward<float>(exec, {4, 6, 8});
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  std::vector<float> value(1);
  std::vector<float> hidden(4 * 8);
  linear_loss_gradients<float> const out{.hidden = {hidden.data(), {4, 8}}};
  mapped_loss<float, curved>::forward(exec, problem.inputs(curved{}), {}, {.loss = value}, space);
  mapped_loss<float, identity_logits>::backward(exec, problem.inputs(), {}, {}, out, space);
  CHECK_THROWS_AS(exec.wait(), value_error);
  CHECK(std::isnan(hidden[0]));
}

TEST_CASE("a map whose bound of slopes is no positive number is refused with it", "[host]") {
  cpu const exec;
  auto const problem = make_loss_problem<float>(4, 6, 8);
  using loss = mapped_loss<float, heated_by_token>;
  auto const plan = loss::plan_backward(exec, {4, 6, 8});
  buffer<std::byte> memory(exec, plan.bytes());
  std::vector<float> value(1);
  std::vector<float> const heat(4, 1.0F);
  for (float const most : {0.0F, -1.0F, std::numeric_limits<float>::infinity()}) {
    CHECK_THROWS_WITH(
        loss::forward(exec, problem.inputs(heated_by_token{heat, most}), {}, {.loss = value}, workspace(plan, memory)),
        contains("linear_loss.forward: the map of logits has slopes up to"));
  }
}
