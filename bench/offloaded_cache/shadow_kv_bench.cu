// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// ShadowKV: decoding steps of a layer of 128K tokens over a cache whose values are in memory of the host, in bf16 or
/// in e4m3, or on the device, and its programs alone (support/offload_steps.cuh has the meaning of counters). There are
/// 16 sequences, or 1. shadow_kv_paper_bench.cu measures the same with landmarks in bf16.
///
/// The time of a prompt has rows of its own, shadow/prefill/....
#include <string>

#include <tessera/shadow_kv.hpp>

#include "support/offload_steps.cuh"

namespace {

using namespace tessera;

void measure_selection(benchmark::State& state, bench::offload_setup const& setup) {
  auto& problem = bench::problem_of<shadow_kv>(setup);
  problem.set(0.6, false);
  bench::measure_program(
      state, problem, [&] { problem.restore(); },
      [&] {
        problem.select();
        problem.assign();
      });
}

void measure_keys(benchmark::State& state, bench::offload_setup const& setup) {
  auto& problem = bench::problem_of<shadow_kv>(setup);
  problem.set(0, false);
  problem.restore();
  problem.step();
  bench::measure_program(
      state, problem, [] {}, [&] { problem.rebuild(); });
  auto const& n = problem.plan().extents;
  double const products = problem.missed() * static_cast<double>(n.chunk * n.channels * n.rank);
  bench::report_cuda(state, bench::seconds_of(state), {.operations = 2 * products});
}

void measure_attention(benchmark::State& state, bench::offload_setup const& setup) {
  auto& problem = bench::problem_of<shadow_kv>(setup);
  problem.set(0.6, false);
  bench::measure_program(
      state, problem, [] {}, [&] { problem.attend_selected(); });
  state.counters["of_read"] = problem.selected_bytes() / bench::seconds_of(state) / bench::read_ceiling();
  bench::report_cuda(state, bench::seconds_of(state), {.bytes = problem.selected_bytes()});
}

/// Adds steps with different parts of chunks in slots, and steps of one sequence.
template <class Method>
void add_all_steps(std::string const& where, value_store store) {
  bench::add_steps<Method>("decode/" + where, store, {0, 30, 60, 80});
  bench::add_cuda("shadow/decode/" + where + "/hit60/128k/1_sequence", [=](benchmark::State& state) {
    bench::measure_step<Method>(state, {1, 131072, store}, 0.6);
  });
}

bench::registration const registered([] {
  using coded = bench::with_coded_values<shadow_kv>;
  bench::offload_setup const usual;
  bench::add_cuda("shadow/score/128k",
                  [=](benchmark::State& state) { bench::measure_scores<shadow_kv>(state, usual); });
  bench::add_cuda("shadow/select/128k", [=](benchmark::State& state) { measure_selection(state, usual); });
  bench::add_cuda("shadow/fetch/host/128k",
                  [=](benchmark::State& state) { bench::measure_fetch<shadow_kv>(state, usual); });
  bench::add_cuda("shadow/rebuild/128k", [=](benchmark::State& state) { measure_keys(state, usual); });
  bench::add_cuda("shadow/attend/128k", [=](benchmark::State& state) { measure_attention(state, usual); });
  add_all_steps<shadow_kv>("host", value_store::host);
  bench::add_cuda("shadow/fetch/fp8/128k", [=](benchmark::State& state) { bench::measure_fetch<coded>(state, usual); });
  add_all_steps<coded>("fp8", value_store::host);
  add_all_steps<shadow_kv>("device", value_store::device);
});

}  // namespace
