// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a backward pass on a GPU tells of its gradient of hidden states is so, by wgmma and by rings.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <tessera/algorithm/loss/hidden_progress.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Copies the rows that a pass tells of to the same rows of another matrix, in the order of the stream.
template <class Loss, class Gradient, class Exec>
void check_told(Exec runner, loss_problem<bfloat16> const& p, bool is_frozen, double tolerance) {
  CAPTURE(p.tokens, p.vocabulary, p.channels, p.options.workspace_budget, is_frozen);
  runner.options.refuses_slower_programs = true;
  cuda const exec;
  device_problem<bfloat16, std::int64_t> const in(exec, p);
  buffer<float> loss(exec, 1);
  std::vector<Gradient> const poison(p.hidden.size(), store<Gradient>(NAN));
  auto hidden = to_device(exec, poison);
  auto seen = to_device(exec, poison);
  auto classifier = to_device(exec, std::vector<Gradient>(p.classifier.size(), store<Gradient>(NAN)));
  auto const plan = Loss::template plan_backward<Gradient>(runner, {p.tokens, p.vocabulary, p.channels}, p.options);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  linear_loss_gradients<Gradient> out{{hidden.data(), {p.tokens, p.channels}}};
  if (!is_frozen) {
    out.classifier = {classifier.data(), {p.vocabulary, p.channels}};
  }
  std::vector<std::int64_t> tokens{0};
  std::function<void(std::int64_t)> const told = [&](std::int64_t whole) {
    if (whole > tokens.back()) {
      std::int64_t const first = tokens.back() * p.channels;
      std::int64_t const count = (whole - tokens.back()) * p.channels;
      runner.copy(array_view<Gradient const>(hidden.data() + first, count),
                  array_view<Gradient>(seen.data() + first, count));
    }
    CHECK(whole >= tokens.back());
    tokens.push_back(whole);
  };
  Loss::forward(runner, in.inputs(), p.options, {.loss = loss.view()}, space);
  Loss::backward(runner, in.inputs(), p.options, {}, out, space, {}, hidden_progress{&told, 256, 24});
  auto const found = to_host(exec, hidden);
  auto const early = to_host(exec, seen);
  runner.wait();
  CHECK(tokens.back() == p.tokens);
  CHECK(std::equal(found.begin(), found.end(), early.begin(), [](Gradient a, Gradient b) {
    return scalar_traits<Gradient>::to_bits(a) == scalar_traits<Gradient>::to_bits(b);
  }));
  auto const expected = reference_gradient(p);
  CHECK(relative_distance(found, expected.hidden) <= tolerance);
  if (!is_frozen) {
    CHECK(relative_distance(to_host(exec, classifier), expected.classifier) <= tolerance);
  }
}

/// Budgets: of one part; of several, the shortest first; of chunks of tokens, where gradients are fp32; of softmaxes.
constexpr std::int64_t budgets[] = {0, std::int64_t{3} << 18, std::int64_t{1} << 20, std::int64_t{64} << 20};

}  // namespace

TEST_CASE("a backward pass on a GPU tells of rows that are whole", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const budget : budgets) {
    for (bool const is_frozen : {false, true}) {
      auto p = make_loss_problem<bfloat16>(600, 1152, 64, true);
      p.options.workspace_budget = budget;
      check_told<exact_cross_entropy, bfloat16>(cuda{}, p, is_frozen, 8e-3);
      check_told<exact_cross_entropy, float>(cuda{}, p, is_frozen, 8e-3);
      p.options.hidden_threshold = p.options.classifier_threshold = 1e-20F;  // entries in order of their use
      check_told<cut_cross_entropy, float>(cuda{}, p, is_frozen, 8e-3);
    }
  }
}

TEST_CASE("rings tell of rows that are whole", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const budget : budgets) {
    for (bool const is_frozen : {false, true}) {
      auto p = make_loss_problem<bfloat16>(600, 1152, 64, true);
      p.options.workspace_budget = budget;
      check_told<exact_cross_entropy, float>(basic_cuda<arch_list<800>>{}, p, is_frozen, 4e-3);
    }
  }
}
