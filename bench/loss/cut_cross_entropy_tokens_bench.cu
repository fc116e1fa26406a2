// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures log-probabilities and entropies of tokens with gradients by both, as reinforcement learning needs them.
///
/// `ms` is the median of calls of both passes, in turns with those of the exact cross-entropy, a mean, `exact_ms`;
/// `over_exact` is the second over the first. `extra_MiB` is what the plan says.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/testing/generators.hpp>

#include "support/cuda.cuh"
#include "support/loss_problem.cuh"
#include "support/loss_runs.cuh"

namespace {

using namespace tessera;
using bench::loss_problem;

/// The problem of these extents. One is kept, because repetitions with the same one follow each other.
loss_problem& problem_of(linear_loss_shape const& shape) {
  static std::unique_ptr<loss_problem> last;
  if (last == nullptr || last->shape().vocabulary != shape.vocabulary) {
    last.reset();
    last = std::make_unique<loss_problem>(bench::loss_data::spread, shape);
  }
  return *last;
}

/// Upstream gradients of tokens, N(0, 1) over the number of tokens.
buffer<float> upstream_of(cuda const& exec, std::int64_t tokens, std::uint64_t seed) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < tokens; ++i) {
    float const value = testing::gauss{}.value(seed, static_cast<std::uint64_t>(i));
    values.push_back(value / static_cast<float>(tokens));
  }
  buffer<float> memory(exec, tokens);
  exec.copy(values, memory);
  exec.wait();  // the source must stay until then
  return memory;
}

void measure(benchmark::State& state, linear_loss_shape const& shape) {
  using loss = bench::exact_with_statistics;
  loss_problem& problem = problem_of(shape);
  cuda const& exec = problem.exec();
  buffer<bfloat16> hidden(exec, problem.hidden().size());
  buffer<bfloat16> classifier(exec, problem.classifier().size());
  linear_loss_gradients<bfloat16> const out{{hidden.data(), {shape.tokens, shape.channels}},
                                            {classifier.data(), {shape.vocabulary, shape.channels}}};
  linear_loss_options of_tokens;
  of_tokens.reduction = loss_reduction::none;
  auto const plan = loss::plan_backward(exec, shape, of_tokens);
  auto const exact_plan = exact_cross_entropy::plan_backward(exec, shape, {});
  buffer<std::byte> memory(exec, plan.bytes());
  buffer<std::byte> exact_memory(exec, exact_plan.bytes());
  workspace const space(plan, memory);
  workspace const exact_space(exact_plan, exact_memory);
  buffer<float> losses(exec, shape.tokens);
  buffer<float> entropies(exec, shape.tokens);
  buffer<float> exact_value(exec, 1);
  buffer<float> const by_loss = upstream_of(exec, shape.tokens, 41);
  buffer<float> const by_entropy = upstream_of(exec, shape.tokens, 42);
  bench::race seconds{};
  for (auto _ : state) {
    seconds = bench::alternate(
        problem.memory().stream(),
        [&] {
          loss::forward(exec, problem.inputs(), of_tokens, {.loss = losses.view(), .entropy = entropies.view()}, space);
          loss::backward(exec, problem.inputs(), of_tokens, {by_loss.view(), {}, by_entropy.view()}, out, space);
        },
        [&] {
          bench::run_forward<exact_cross_entropy>(exec, problem.inputs(), {}, {.loss = exact_value.view()},
                                                  exact_space);
          bench::run_backward<exact_cross_entropy>(exec, problem.inputs(), {}, out, exact_space);
        });
    state.SetIterationTime(seconds.ours);
  }
  exec.wait();
  constexpr double mebibyte = 1 << 20;
  state.counters["ms"] = 1e3 * seconds.ours;
  state.counters["exact_ms"] = 1e3 * seconds.peer;
  state.counters["over_exact"] = seconds.peer / seconds.ours;
  state.counters["extra_MiB"] = static_cast<double>(plan.bytes()) / mebibyte;
  bench::report_cuda(state, seconds.ours, {.operations = 4 * problem.operations()});
}

bench::registration const registered([] {
  for (linear_loss_shape const& shape : {linear_loss_shape{8192, 256000, 2304}, {8192, 128256, 4096}}) {
    std::string const size =
        std::to_string(shape.tokens) + "x" + std::to_string(shape.vocabulary) + "x" + std::to_string(shape.channels);
    bench::add_cuda("cut_cross_entropy/log_probabilities_and_entropies/forward_backward_exact/bf16/spread/" + size,
                    [=](benchmark::State& state) { measure(state, shape); });
  }
});

}  // namespace
