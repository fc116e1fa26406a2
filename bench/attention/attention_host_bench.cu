// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The time that calls of SageAttention2 take on the host (support/host_time.cuh).
#include <cstddef>
#include <cstdint>

#include <tessera/exec/buffer.hpp>
#include <tessera/sage_attention2.hpp>

#include "support/attention_runs.cuh"
#include "support/host_time.cuh"

namespace {

using namespace tessera;

void attention_on_host(benchmark::State& state, std::int64_t queries) {
  cuda const exec;
  attention_shape const shape{1, 8, 2, queries, 1024, 128};
  buffer<bfloat16> q(exec, shape.query_heads * queries * shape.channels);
  buffer<bfloat16> k(exec, shape.key_heads * shape.keys * shape.channels);
  buffer<bfloat16> out(exec, shape.query_heads * queries * shape.channels);
  exec.clear(q.view());
  exec.clear(k.view());
  auto const plan = sage_attention2::plan_forward(exec, shape);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  head_view<bfloat16 const> const keys(k.data(), {1, shape.key_heads, shape.keys, shape.channels});
  attention_inputs<bfloat16> const in{{q.data(), {1, shape.query_heads, queries, shape.channels}}, keys, keys};
  bench::measure_host_time(state, [&](cuda const& on) {
    sage_attention2::forward(on, in, {.is_causal = true},
                             attention_outputs<bfloat16>{{out.data(), {1, shape.query_heads, queries, shape.channels}}},
                             space);
  });
}

bench::registration const registered([] {
  bench::add_cuda("host/attention/forward/1024", [](benchmark::State& state) { attention_on_host(state, 1024); });
  bench::add_cuda("host/attention/forward/1", [](benchmark::State& state) { attention_on_host(state, 1); });
});

}  // namespace
