// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

using statistics_loss = exact_cross_entropy_of<bfloat16, loss_statistics>;
constexpr std::int64_t short_memory = 3 << 19;
constexpr std::int64_t memory_for_statistics = 5 << 19;

/// A problem whose parts have some of the tokens, and a number of entries that leaves a last part of another size.
template <class Loss>
loss_problem<bfloat16> problem_in_short_memory(std::int64_t tokens, std::int64_t channels, bool with_all = false,
                                               std::int64_t budget = short_memory) {
  constexpr std::int64_t vocabulary = 3001;
  auto problem = make_loss_problem<bfloat16>(tokens, vocabulary, channels, with_all);
  problem.options.workspace_budget = budget;
  auto const plan =
      Loss::template plan_backward<float>(tessera::cuda{}, {tokens, vocabulary, channels}, problem.options);
  auto const part = std::find_if(plan.entries().begin(), plan.entries().end(),
                                 [](auto const& region) { return region.name == "gradient of a part of the logits"; });
  REQUIRE(part != plan.entries().end());
  REQUIRE(choose_loss_chunk(tokens, vocabulary, channels, part->bytes / (2 * tokens)).tokens < tokens);
  return problem;
}

bool are_same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), sizeof(float) * a.size()) == 0;
}

/// Checks gradients against the reference and those of parts of all tokens, whose sums have another order.
template <class Loss>
void check_in_short_memory(loss_problem<bfloat16> const& problem, upstream_samples const& upstream = {}) {
  CAPTURE(problem.tokens, problem.channels);
  tessera::cuda const exec;
  auto const found = run_on_device<Loss, float>(exec, problem, false, upstream);
  auto const again = run_on_device<Loss, float>(exec, problem, false, upstream);
  CHECK(are_same_bits(found.hidden, again.hidden));
  CHECK(are_same_bits(found.classifier, again.classifier));
  auto const expected = reference_gradient(problem, upstream);
  CHECK(relative_distance(found.hidden, expected.hidden) <= 4e-3);
  CHECK(relative_distance(found.classifier, expected.classifier) <= 4e-3);
  auto usual = problem;
  usual.options.workspace_budget = 0;
  auto const whole = run_on_device<Loss, float>(exec, usual, false, upstream);
  CHECK(relative_distance(found.hidden, doubles_of(whole.hidden)) <= 1e-4);
  CHECK(relative_distance(found.classifier, doubles_of(whole.classifier)) <= 1e-4);
}

/// The gradient of hidden states alone, or of the classifier.
std::vector<float> one_gradient(loss_problem<bfloat16> const& p, bool of_hidden) {
  tessera::cuda const exec;
  device_problem<bfloat16, std::int64_t> const in(exec, p);
  buffer<float> loss(exec, 1);
  buffer<float> gradient(exec, (of_hidden ? p.tokens : p.vocabulary) * p.channels);
  auto const plan = exact_cross_entropy::plan_backward<float>(exec, {p.tokens, p.vocabulary, p.channels}, p.options);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  linear_loss_gradients<float> out;
  if (of_hidden) {
    out.hidden = {gradient.data(), {p.tokens, p.channels}};
  } else {
    out.classifier = {gradient.data(), {p.vocabulary, p.channels}};
  }
  exact_cross_entropy::forward(exec, in.inputs(), p.options, {.loss = loss.view()}, space);
  exact_cross_entropy::backward(exec, in.inputs(), p.options, {}, out, space);
  return to_host(exec, gradient);
}

}  // namespace

TEST_CASE("all parts by one launch make the gradients of parts of all tokens", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_in_short_memory<exact_cross_entropy>(problem_in_short_memory<exact_cross_entropy>(1800, 72));
  check_in_short_memory<exact_cross_entropy>(problem_in_short_memory<exact_cross_entropy>(1792, 136, true));
}

TEST_CASE("options reach the gradients of all parts by one launch", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto problem = problem_in_short_memory<statistics_loss>(1800, 72, true, memory_for_statistics);
  upstream_samples upstream{{}, {}, std::vector<float>(1800, 0.0F)};
  for (std::size_t token = 0; token < 1800; ++token) {
    upstream.entropy[token] = 1e-4F * static_cast<float>(token % 7);
  }
  check_in_short_memory<statistics_loss>(problem, upstream);
  problem.options.smoothing = 0.1F;
  problem.options.softcap = 5.0F;
  problem.options.z_factor = 1e-3F;
  check_in_short_memory<statistics_loss>(problem);
}

TEST_CASE("all parts by one launch make one gradient alone as they make both", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const problem = problem_in_short_memory<exact_cross_entropy>(1800, 72);
  auto const both = run_on_device<exact_cross_entropy, float>(tessera::cuda{}, problem, false);
  CHECK(are_same_bits(one_gradient(problem, true), both.hidden));
  CHECK(are_same_bits(one_gradient(problem, false), both.classifier));
}

TEST_CASE("hidden states of tokens without a label reach no gradient of all parts by one launch", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto problem = problem_in_short_memory<exact_cross_entropy>(1800, 72);
  auto const clean = run_on_device<exact_cross_entropy, float>(tessera::cuda{}, problem, false);
  for (std::size_t token = 0; token < 1800; ++token) {
    if (problem.labels[token] < 0) {
      float const bad = token % 2 == 0 ? std::numeric_limits<float>::infinity() : NAN;
      problem.hidden[token * 72 + token % 72] = store<bfloat16>(bad);
    }
  }
  auto const found = run_on_device<exact_cross_entropy, float>(tessera::cuda{}, problem, false);
  // Not the same bits: beside rows that are not finite others may round otherwise, by two launches a part, too.
  CHECK(relative_distance(found.hidden, doubles_of(clean.hidden)) <= 1e-6);
  CHECK(relative_distance(found.classifier, doubles_of(clean.classifier)) <= 1e-6);
}
