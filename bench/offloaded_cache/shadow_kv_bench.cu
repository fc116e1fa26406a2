// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// ShadowKV: decoding steps of a layer of 128K tokens over a cache whose values are in memory of the host, in bf16 or
/// in e4m3, or on the device, and its programs alone. There are 16 sequences, or 1. shadow/paper/...: with landmarks in
/// bf16.
///
/// `speedup`: against our own dense decoding over all keys and values in bf16, measured beside it. A step is a CUDA
/// graph; each from a cold L2. In one of eight steps a chunk leaves the ring: `ms` is the mean with that share,
/// `archiving_ms` the time of such a step alone. `hits`: the part of selected chunks that lie in slots, `of_read` and
/// `of_bus`: against a kernel that only reads, and the runtime's copy from pinned memory, of the same run.
/// `relative_l1`: of results of a step, against the portable programs'.
///
/// The time of a prompt has rows of its own, shadow/prefill/....
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>

#include <tessera/quantize/scaled_float.hpp>

#include "support/cuda.cuh"
#include "support/offload_problem.cuh"

namespace {

using namespace tessera;
/// The method with values kept in another form.
template <class Method, class Codec>
using with_values = offloaded_cache<low_rank<160>, typename Method::selector_type, keep_outliers<48>, Codec>;
using codes = float8_quantizer<float8_e4m3>;

/// The last problem, of any method, which is kept, since rows with the same problem follow each other.
std::shared_ptr<void>& last_problem() {
  static std::shared_ptr<void> last;
  return last;
}
template <class Method>
bench::offload_problem<Method>& problem_of(bench::offload_setup const& setup) {
  static std::weak_ptr<bench::offload_problem<Method>> own;
  auto found = own.lock();
  if (found == nullptr || !(found->setup() == setup)) {
    found.reset();  // freed first, so that two problems are never in memory
    last_problem().reset();
    found = std::make_shared<bench::offload_problem<Method>>(setup);
    own = found;
    last_problem() = found;
  }
  return *found;
}

int samples() {
  return bench::only_starts() ? 3 : 25;
}

template <class Method>
double step_seconds(bench::offload_problem<Method>& problem, double hit_rate, bool archives) {
  problem.set(hit_rate, archives);
  bench::call_graph const graph(problem.stream(), 1, [&](cudaStream_t, int) { problem.step(); });
  return bench::median_cold_seconds(
      problem.stream(), samples(), [&](cudaStream_t) { graph.launch(); }, [&](cudaStream_t) { problem.restore(); });
}

template <class Method>
void check_results(benchmark::State& state, bench::offload_problem<Method>& problem, double hit_rate) {
  problem.set(hit_rate, false);
  problem.restore();
  problem.step();
  double const selected = static_cast<double>(problem.setup().sequences) *
                          static_cast<double>(problem.plan().extents.key_heads * problem.plan().extents.budget);
  state.counters["hits"] = 1 - problem.missed() / selected;
  problem.restore();
  problem.step_portably();
  double const distance = problem.distance();
  state.counters["relative_l1"] = distance;
  if (!(distance < 0.02)) {
    throw std::runtime_error("the relative L1 distance is " + std::to_string(distance));
  }
}

template <class Method>
void measure_step(benchmark::State& state, bench::offload_setup const& setup, double hit_rate) {
  auto& problem = problem_of<Method>(setup);
  double seconds = 0;
  double archiving = 0;
  double dense = 0;
  for (auto _ : state) {
    dense = bench::median_cold_seconds(problem.stream(), samples(), [&](cudaStream_t) { problem.attend_dense(); });
    archiving = step_seconds(problem, hit_rate, true);
    seconds = (7 * step_seconds(problem, hit_rate, false) + archiving) / 8;
    state.SetIterationTime(seconds);
  }
  state.counters["ms"] = 1e3 * seconds;
  state.counters["archiving_ms"] = 1e3 * archiving;
  state.counters["dense_ms"] = 1e3 * dense;
  state.counters["dense_of_read"] = problem.dense_bytes() / dense / bench::read_ceiling();
  state.counters["speedup"] = dense / seconds;
  state.counters["sequences"] = static_cast<double>(setup.sequences);
  state.counters["gpu_bytes_ratio"] = problem.dense_bytes() / problem.cache_bytes();
  check_results(state, problem, hit_rate);
}

/// Measures a program of a step, after the programs that it needs. `bytes`: those that it reads, over the bus or from
/// the device's memory.
template <class Method, class Before, class Body>
void measure_program(benchmark::State& state, bench::offload_problem<Method>& problem, Before const& before,
                     Body const& body) {
  double seconds = 0;
  for (auto _ : state) {
    seconds = bench::median_cold_seconds(
        problem.stream(), samples(), [&](cudaStream_t) { body(); }, [&](cudaStream_t) { before(); });
    state.SetIterationTime(seconds);
  }
  state.counters["ms"] = 1e3 * seconds;
}
double seconds_of(benchmark::State const& state) {
  return 1e-3 * state.counters.at("ms");
}

template <class Method>
void measure_scores(benchmark::State& state, bench::offload_setup const& setup) {
  auto& problem = problem_of<Method>(setup);
  problem.set(0.6, false);
  measure_program(
      state, problem, [] {}, [&] { problem.score(); });
  state.counters["of_read"] = problem.score_bytes() / seconds_of(state) / bench::read_ceiling();
  bench::report_cuda(state, seconds_of(state), {.bytes = problem.score_bytes()});
}

void measure_selection(benchmark::State& state, bench::offload_setup const& setup) {
  auto& problem = problem_of<shadow_kv>(setup);
  problem.set(0.6, false);
  measure_program(
      state, problem, [&] { problem.restore(); },
      [&] {
        problem.select();
        problem.assign();
      });
}

template <class Method>
void measure_fetch(benchmark::State& state, bench::offload_setup const& setup) {
  auto& problem = problem_of<Method>(setup);
  problem.set(0, false);
  problem.restore();
  problem.step();
  measure_program(
      state, problem, [] {}, [&] { problem.fetch(); });
  double const bytes = problem.missed() * problem.record_bytes();
  state.counters["of_bus"] = bytes / seconds_of(state) / bench::bus_ceiling();
  bench::report_cuda(state, seconds_of(state), {.bytes = bytes});
}

void measure_keys(benchmark::State& state, bench::offload_setup const& setup) {
  auto& problem = problem_of<shadow_kv>(setup);
  problem.set(0, false);
  problem.restore();
  problem.step();
  measure_program(
      state, problem, [] {}, [&] { problem.rebuild(); });
  auto const& n = problem.plan().extents;
  double const products = problem.missed() * static_cast<double>(n.chunk * n.channels * n.rank);
  bench::report_cuda(state, seconds_of(state), {.operations = 2 * products});
}

void measure_attention(benchmark::State& state, bench::offload_setup const& setup) {
  auto& problem = problem_of<shadow_kv>(setup);
  problem.set(0.6, false);
  measure_program(
      state, problem, [] {}, [&] { problem.attend_selected(); });
  state.counters["of_read"] = problem.selected_bytes() / seconds_of(state) / bench::read_ceiling();
  bench::report_cuda(state, seconds_of(state), {.bytes = problem.selected_bytes()});
}

/// Adds steps of 16 sequences, with so many percent of their chunks in slots.
template <class Method>
void add_steps(std::string const& where, value_store store, std::initializer_list<int> hit_rates) {
  for (int const hits : hit_rates) {
    bench::add_cuda("shadow/" + where + "/hit" + std::to_string(hits) + "/128k", [=](benchmark::State& state) {
      measure_step<Method>(state, {16, 131072, store}, 0.01 * hits);
    });
  }
}
template <class Method>
void add_steps(std::string const& where, value_store store) {
  add_steps<Method>("decode/" + where, store, {0, 30, 60, 80});
  bench::add_cuda("shadow/decode/" + where + "/hit60/128k/1_sequence", [=](benchmark::State& state) {
    measure_step<Method>(state, {1, 131072, store}, 0.6);
  });
}

bench::registration const registered([] {
  using coded = with_values<shadow_kv, codes>;
  bench::offload_setup const usual;
  bench::add_cuda("shadow/score/128k", [=](benchmark::State& state) { measure_scores<shadow_kv>(state, usual); });
  bench::add_cuda("shadow/select/128k", [=](benchmark::State& state) { measure_selection(state, usual); });
  bench::add_cuda("shadow/fetch/host/128k", [=](benchmark::State& state) { measure_fetch<shadow_kv>(state, usual); });
  bench::add_cuda("shadow/rebuild/128k", [=](benchmark::State& state) { measure_keys(state, usual); });
  bench::add_cuda("shadow/attend/128k", [=](benchmark::State& state) { measure_attention(state, usual); });
  add_steps<shadow_kv>("host", value_store::host);
  bench::add_cuda("shadow/fetch/fp8/128k", [=](benchmark::State& state) { measure_fetch<coded>(state, usual); });
  add_steps<coded>("fp8", value_store::host);
  add_steps<shadow_kv>("device", value_store::device);
  // The rows with the paper's landmarks.
  bench::add_cuda("shadow/paper/score/128k",
                  [=](benchmark::State& state) { measure_scores<shadow_kv_paper>(state, usual); });
  add_steps<shadow_kv_paper>("paper/decode/host", value_store::host, {60});
  add_steps<with_values<shadow_kv_paper, codes>>("paper/decode/fp8", value_store::host, {60});
  add_steps<shadow_kv_paper>("paper/decode/device", value_store::device, {60});
});

}  // namespace
