// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <sys/mman.h>
#include <vector>

#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>

#include "support/catch.hpp"
#include "support/loss_gradient_reference.hpp"
#include "support/loss_runs.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using statistics = paired_reducer<lse_reducer<float>, sum_reducer<float>>;
using loss = linear_loss<gemm_tile<float, shape<64, 64, 8>>, statistics, gradient_filter<0, 64, 64>>;
using results = gradient_results<float>;

results run(loss_problem<float> const& problem) {
  return run_gradients<loss, float>(cpu{.threads = 2}, problem);
}

std::vector<double> in_double(std::vector<float> const& values) {
  return {values.begin(), values.end()};
}

double near(float value) {
  return static_cast<double>(value);
}

/// Row i of the result is row order[i].
std::vector<float> reordered(std::vector<float> const& values, std::vector<std::size_t> const& order,
                             std::size_t columns) {
  std::vector<float> moved;
  for (std::size_t const row : order) {
    auto const first = values.begin() + static_cast<std::ptrdiff_t>(row * columns);
    moved.insert(moved.end(), first, first + static_cast<std::ptrdiff_t>(columns));
  }
  return moved;
}

}  // namespace

TEST_CASE("random problems have the losses and gradients of the reference", "[host][threads]") {
  for (std::uint64_t i = 0; i < 40; ++i) {
    auto const pick = [i](std::uint64_t what, std::uint64_t below) { return testing::hash(100 + what, i) % below; };
    auto problem =
        make_loss_problem<float>(static_cast<std::int64_t>(pick(1, 150)), static_cast<std::int64_t>(1 + pick(2, 200)),
                                 static_cast<std::int64_t>(1 + pick(3, 40)), pick(4, 2) == 1);
    problem.options.softcap = pick(5, 2) == 1 ? 3.0F : 0.0F;
    problem.options.temperature = pick(6, 2) == 1 ? 1.5F : 1.0F;
    problem.options.smoothing = pick(7, 2) == 1 ? 0.2F : 0.0F;
    problem.options.z_factor = pick(8, 2) == 1 ? 1e-3F : 0.0F;
    problem.options.shift = static_cast<std::int64_t>(pick(9, 3));
    problem.options.reduction = static_cast<loss_reduction>(pick(10, 3));
    CAPTURE(i, problem.tokens, problem.vocabulary, problem.channels);
    auto const found = run(problem);
    auto const expected = reference_loss(problem);
    if (problem.options.reduction != loss_reduction::none) {
      CHECK(near(found.loss[0]) == Approx(expected.total).epsilon(5e-6).margin(1e-6));
    }
    CHECK(worst_distance(found, reference_gradient(problem)) < 2e-5);
  }
}

TEST_CASE("gradients of the bias add up to zero for each token, and a constant bias changes nothing",
          "[host][threads]") {
  auto problem = make_loss_problem<float>(40, 150, 16);
  auto const before = run(problem);
  double total = 0;
  for (float const value : before.bias) {
    total += static_cast<double>(value);
  }
  CHECK(std::fabs(total) < 1e-6);
  problem.bias.assign(150, 2.5F);
  auto const after = run(problem);
  CHECK(near(after.loss[0]) == Approx(near(before.loss[0])).epsilon(1e-6));
  CHECK(relative_distance(after.hidden, in_double(before.hidden)) < 1e-5);
}

TEST_CASE("permuting the vocabulary permutes the classifier's gradient, permuting tokens the hidden one",
          "[host][threads]") {
  auto problem = make_loss_problem<float>(40, 150, 16);
  auto const before = run(problem);
  std::vector<std::size_t> order(150);
  for (std::size_t i = 0; i < 150; ++i) {
    order[i] = (7 * i + 3) % 150;
  }
  auto moved = problem;
  moved.classifier = reordered(problem.classifier, order, 16);
  for (std::int64_t& label : moved.labels) {
    auto const found = std::find(order.begin(), order.end(), static_cast<std::size_t>(label));
    label = label < 0 ? label : found - order.begin();
  }
  auto after = run(moved);
  CHECK(near(after.loss[0]) == Approx(near(before.loss[0])).epsilon(1e-6));
  CHECK(relative_distance(after.hidden, in_double(before.hidden)) < 1e-5);
  CHECK(relative_distance(after.classifier, in_double(reordered(before.classifier, order, 16))) < 1e-5);
  order.resize(40);
  for (std::size_t i = 0; i < 40; ++i) {
    order[i] = (7 * i + 3) % 40;
    moved.labels[i] = problem.labels[order[i]];
  }
  moved.classifier = problem.classifier;
  moved.hidden = reordered(problem.hidden, order, 16);
  after = run(moved);
  CHECK(relative_distance(after.hidden, in_double(reordered(before.hidden, order, 16))) < 1e-5);
  CHECK(relative_distance(after.classifier, in_double(before.classifier)) < 1e-5);
}

TEST_CASE("a shift is the same as shifted labels, a temperature as smaller hidden states", "[host][threads]") {
  auto problem = make_loss_problem<float>(40, 150, 16);
  auto shifted = problem;
  shifted.options.shift = 2;
  problem.labels.erase(problem.labels.begin(), problem.labels.begin() + 2);
  problem.labels.insert(problem.labels.end(), 2, -100);
  auto const expected = run(problem);
  auto const found = run(shifted);
  CHECK(found.loss == expected.loss);
  CHECK(found.hidden == expected.hidden);
  auto cooled = problem;
  cooled.options.temperature = 2.0F;
  for (float& value : problem.hidden) {
    value *= 0.5F;
  }
  CHECK(run(cooled).loss == run(problem).loss);
}

TEST_CASE("a sum is the mean times the weight, and zero upstream means zero gradients", "[host][threads]") {
  auto problem = make_loss_problem<float>(40, 150, 16, true);
  auto const mean = run(problem);
  double const weight = reference_loss(problem).weight;
  problem.options.reduction = loss_reduction::sum;
  CHECK(near(run(problem).loss[0]) == Approx(near(mean.loss[0]) * weight).epsilon(1e-6));
  auto const nothing = run_gradients<loss, float>(cpu{.threads = 1}, problem, {{0.0F}, {}, {}});
  CHECK(nothing.hidden == std::vector<float>(nothing.hidden.size()));
  CHECK(nothing.classifier == std::vector<float>(nothing.classifier.size()));
  CHECK(nothing.bias == std::vector<float>(nothing.bias.size()));
}

TEST_CASE("matrices may be larger than 2^31 elements", "[host]") {
  constexpr std::size_t stride = (std::size_t{1} << 31) + 5;
  constexpr std::size_t bytes = (3 * stride + 64) * sizeof(float);
  void* const block =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED) {
    TESSERA_SKIP("no address space for 24 GiB of which 4 pages are touched");
  }
  auto* const rows = static_cast<float*>(block);
  auto const problem = make_loss_problem<float>(3, 4, 8);
  for (std::size_t entry = 0; entry < 4; ++entry) {
    std::copy_n(problem.classifier.begin() + static_cast<std::ptrdiff_t>(8 * entry), 8, rows + entry * stride);
  }
  auto in = problem.inputs();
  in.classifier = matrix_view<float const>(rows, {4, 8}, {static_cast<std::int64_t>(stride), 1});
  cpu const exec{.threads = 1};
  auto const plan = loss::plan_forward(exec, {3, 4, 8});
  buffer<std::byte> memory(exec, plan.bytes());
  std::vector<float> value(1);
  loss::forward(exec, in, {}, {.loss = value}, workspace(plan, memory));
  ::munmap(block, bytes);
  CHECK(near(value[0]) == Approx(reference_loss(problem).total).epsilon(1e-6));
}
