// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The time that each pass of a loss takes on the host (support/host_time.cuh).
#include <cstddef>
#include <cstdint>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>

#include "support/host_time.cuh"
#include "support/loss_runs.cuh"

namespace {

using namespace tessera;

void loss_on_host(benchmark::State& state, bool is_backward) {
  cuda const exec;
  using loss = cut_cross_entropy;
  linear_loss_shape const shape{256, 4096, 256};
  buffer<bfloat16> hidden(exec, shape.tokens * shape.channels);
  buffer<bfloat16> classifier(exec, shape.vocabulary * shape.channels);
  buffer<std::int64_t> labels(exec, shape.tokens);
  buffer<float> value(exec, 1);
  buffer<bfloat16> of_hidden(exec, shape.tokens * shape.channels);
  buffer<bfloat16> of_classifier(exec, shape.vocabulary * shape.channels);
  exec.clear(hidden.view());
  exec.clear(classifier.view());
  exec.clear(labels.view());
  auto const plan = loss::plan_backward(exec, shape);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  loss::inputs<std::int64_t> const in{{hidden.data(), {shape.tokens, shape.channels}},
                                      {classifier.data(), {shape.vocabulary, shape.channels}},
                                      {labels.data(), {shape.tokens}}};
  linear_loss_gradients<bfloat16> const gradients{{of_hidden.data(), {shape.tokens, shape.channels}},
                                                  {of_classifier.data(), {shape.vocabulary, shape.channels}}};
  bench::run_forward<loss>(exec, in, {}, {.loss = value.view()}, space);  // what the backward pass reads
  bench::measure_host_time(state, [&](cuda const& on) {
    if (is_backward) {
      bench::run_backward<loss>(on, in, {}, gradients, space);
    } else {
      bench::run_forward<loss>(on, in, {}, {.loss = value.view()}, space);
    }
  });
}

bench::registration const registered([] {
  bench::add_cuda("host/cut_cross_entropy/forward", [](benchmark::State& state) { loss_on_host(state, false); });
  bench::add_cuda("host/cut_cross_entropy/backward", [](benchmark::State& state) { loss_on_host(state, true); });
});

}  // namespace
