// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Times host code.
///
///     bench::add("sum/fp32/64MiB/1thread", [](benchmark::State& state) {
///       std::vector<float> const values(1 << 24, 1.0F);
///       double const seconds = bench::time_cpu(state, [&] { benchmark::DoNotOptimize(sum(values)); });
///       bench::report_cpu(state, seconds, {.bytes = 4.0 * values.size()});
///     });
#pragma once

#include <chrono>
#include <vector>

#include "harness.hpp"

namespace bench {

/// Calls `body()` once to warm up, then once for each iteration; returns the median seconds of a call.
template <class Body>
double time_cpu(benchmark::State& state, Body&& body) {
  using clock = std::chrono::steady_clock;
  body();
  std::vector<double> samples;
  for (auto _ : state) {
    auto const start = clock::now();
    body();
    benchmark::ClobberMemory();
    double const seconds = std::chrono::duration<double>(clock::now() - start).count();
    samples.push_back(seconds);
    state.SetIterationTime(seconds);
  }
  return samples.empty() ? 0 : median(samples);
}

inline void report_cpu(benchmark::State& state, double seconds, work const& done) {
  if (!(seconds > 0)) {
    return;
  }
  state.counters["GBps"] = done.bytes / seconds * 1e-9;
  if (done.operations > 0) {
    state.counters["GFLOPs"] = done.operations / seconds * 1e-9;
  }
  count_peak(state, done);
}

}  // namespace bench
