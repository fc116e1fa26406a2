// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What the benchmarks of an offloaded cache measure: whole steps of decoding, and the programs that
/// score landmarks and fetch values. Each kind of landmarks has a source of its own, since it has kernels of its own.
///
/// `speedup`: against our own dense decoding over all keys and values in bf16, measured beside it. A step is a CUDA
/// graph; each from a cold L2. In one of eight steps a chunk leaves the ring: `ms` is the mean with that share,
/// `archiving_ms` the time of such a step alone. `hits`: the part of selected chunks that lie in slots, `of_read` and
/// `of_bus`: against a kernel that only reads, and the runtime's copy from pinned memory, of the same run.
/// `relative_l1`: of results of a step, against the portable programs'.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/quantize/scaled_float.hpp>

#include "cuda.cuh"
#include "offload_problem.cuh"

namespace bench {

/// The method with values kept in e4m3.
template <class Method>
using with_coded_values =
    tessera::offloaded_cache<tessera::low_rank<160>, typename Method::selector_type, tessera::keep_outliers<48>,
                             tessera::float8_quantizer<tessera::float8_e4m3>>;

/// The last problem, of any method, which is kept, since rows with the same problem follow each other.
inline std::shared_ptr<void>& last_problem() {
  static std::shared_ptr<void> last;
  return last;
}
template <class Method>
offload_problem<Method>& problem_of(offload_setup const& setup) {
  static std::weak_ptr<offload_problem<Method>> own;
  auto found = own.lock();
  if (found == nullptr || !(found->setup() == setup)) {
    found.reset();  // freed first, so that two problems are never in memory
    last_problem().reset();
    found = std::make_shared<offload_problem<Method>>(setup);
    own = found;
    last_problem() = found;
  }
  return *found;
}

inline int samples() {
  return only_starts() ? 3 : 25;
}

template <class Method>
double step_seconds(offload_problem<Method>& problem, double hit_rate, bool archives) {
  problem.set(hit_rate, archives);
  call_graph const graph(problem.stream(), 1, [&](cudaStream_t, int) { problem.step(); });
  return median_cold_seconds(
      problem.stream(), samples(), [&](cudaStream_t) { graph.launch(); }, [&](cudaStream_t) { problem.restore(); });
}

/// The time of a step, in one of eight of which a chunk leaves the ring.
template <class Method>
double mean_step_seconds(offload_problem<Method>& problem, double hit_rate) {
  return (7 * step_seconds(problem, hit_rate, false) + step_seconds(problem, hit_rate, true)) / 8;
}

template <class Method>
void check_results(benchmark::State& state, offload_problem<Method>& problem, double hit_rate) {
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
void measure_step(benchmark::State& state, offload_setup const& setup, double hit_rate) {
  auto& problem = problem_of<Method>(setup);
  double seconds = 0;
  double archiving = 0;
  double dense = 0;
  for (auto _ : state) {
    dense = median_cold_seconds(problem.stream(), samples(), [&](cudaStream_t) { problem.attend_dense(); });
    archiving = step_seconds(problem, hit_rate, true);
    seconds = (7 * step_seconds(problem, hit_rate, false) + archiving) / 8;
    state.SetIterationTime(seconds);
  }
  state.counters["ms"] = 1e3 * seconds;
  state.counters["archiving_ms"] = 1e3 * archiving;
  state.counters["dense_ms"] = 1e3 * dense;
  state.counters["dense_of_read"] = problem.dense_bytes() / dense / read_ceiling();
  state.counters["speedup"] = dense / seconds;
  state.counters["sequences"] = static_cast<double>(setup.sequences);
  state.counters["gpu_bytes_ratio"] = problem.dense_bytes() / problem.cache_bytes();
  check_results(state, problem, hit_rate);
}

/// Measures steps of a method in turns with those of shadow_kv, or of that with other values.
template <class Method, class Shadow>
void measure_step_in_turns(benchmark::State& state, offload_setup const& setup, double hit_rate) {
  last_problem().reset();
  offload_problem<Method> own(setup);
  offload_problem<Shadow> other(setup);
  std::vector<double> seconds;
  std::vector<double> ratios;
  for (auto _ : state) {
    for (int turn = 0; turn < (only_starts() ? 1 : 5); ++turn) {
      double const of_other = mean_step_seconds(other, hit_rate);
      seconds.push_back(mean_step_seconds(own, hit_rate));
      ratios.push_back(of_other / seconds.back());
    }
    std::sort(seconds.begin(), seconds.end());
    std::sort(ratios.begin(), ratios.end());
    state.SetIterationTime(seconds[seconds.size() / 2]);
  }
  state.counters["ms"] = 1e3 * seconds[seconds.size() / 2];
  state.counters["of_shadow_kv"] = ratios[ratios.size() / 2];
  check_results(state, own, hit_rate);
}

/// Measures a program of a step, after the programs that it needs. `bytes`: those that it reads, over the bus or from
/// the device's memory.
template <class Method, class Before, class Body>
void measure_program(benchmark::State& state, offload_problem<Method>& problem, Before const& before,
                     Body const& body) {
  double seconds = 0;
  for (auto _ : state) {
    seconds = median_cold_seconds(
        problem.stream(), samples(), [&](cudaStream_t) { body(); }, [&](cudaStream_t) { before(); });
    state.SetIterationTime(seconds);
  }
  state.counters["ms"] = 1e3 * seconds;
}
inline double seconds_of(benchmark::State const& state) {
  return 1e-3 * state.counters.at("ms");
}

template <class Method>
void measure_scores(benchmark::State& state, offload_setup const& setup) {
  auto& problem = problem_of<Method>(setup);
  problem.set(0.6, false);
  measure_program(
      state, problem, [] {}, [&] { problem.score(); });
  state.counters["of_read"] = problem.score_bytes() / seconds_of(state) / read_ceiling();
  report_cuda(state, seconds_of(state), {.bytes = problem.score_bytes()});
}

template <class Method>
void measure_fetch(benchmark::State& state, offload_setup const& setup) {
  auto& problem = problem_of<Method>(setup);
  problem.set(0, false);
  problem.restore();
  problem.step();
  measure_program(
      state, problem, [] {}, [&] { problem.fetch(); });
  double const bytes = problem.missed() * problem.record_bytes();
  state.counters["of_bus"] = bytes / seconds_of(state) / bus_ceiling();
  report_cuda(state, seconds_of(state), {.bytes = bytes});
}

/// Adds steps of 16 sequences, with so many percent of their chunks in slots.
template <class Method>
void add_steps(std::string const& where, tessera::value_store store, std::initializer_list<int> hit_rates) {
  for (int const hits : hit_rates) {
    add_cuda("shadow/" + where + "/hit" + std::to_string(hits) + "/128k", [=](benchmark::State& state) {
      measure_step<Method>(state, {16, 131072, store}, 0.01 * hits);
    });
  }
}

}  // namespace bench
