// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The shared parts of all benchmarks: registration, skipping, the counters and the run's description.
///
///     bench::registration const registered([] { bench::add("sum/fp32/64MiB/1thread", sum); });  // in namespace {}
///
/// Names are paths, `<program>/<operation>/<format>/<data>/<size>`, and report.py finds results by them. Any number of
/// benchmark files can be linked into one program.
///
/// Counters: `TBps` (GPU) or `GBps` (CPU) is the rate of the bytes that a benchmark is about, in powers of ten.
/// `traffic_TBps` is the rate of the bytes that must cross device memory, `of_copy` that rate over the rate of the
/// machine's own copy in the same process, and `peak_MiB` the most memory held during the measured call.
#pragma once

#include <algorithm>
#include <benchmark/benchmark.h>
#include <cstddef>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace bench {

using callbacks = std::vector<void (*)()>;

/// Functions that describe the run with benchmark::AddCustomContext; main.cpp calls them before the first benchmark.
inline callbacks& descriptions() {
  static callbacks all;
  return all;
}

/// Functions that add benchmarks; main.cpp calls them once it has read the command line.
inline callbacks& registrations() {
  static callbacks all;
  return all;
}

/// A benchmark file's entry in `registrations()`.
struct registration {
  explicit registration(void (*add_benchmarks)()) { registrations().push_back(add_benchmarks); }
};

/// Leaves a benchmark out, with the reason in the output; the program still ends with 0.
template <class State>
void skip(State& state, std::string const& reason) {
  if constexpr (requires { state.SkipWithMessage(reason); }) {  // Google Benchmark 1.8 and later
    state.SkipWithMessage(reason);
  } else {
    state.SkipWithError(reason.c_str());
  }
}

/// Whether a benchmark has failed, as opposed to being left out; the program then ends with 1.
inline bool& any_failed() {
  static bool failed = false;
  return failed;
}

/// Whether this run only shows that each benchmark starts, as in CTest: main.cpp concludes that from a
/// --benchmark_min_time smaller than any run that measures. Benchmarks that choose their rounds themselves look here.
inline bool& only_starts() {
  static bool answer = false;
  return answer;
}

/// Registers `body(state)`. An exception becomes the row's error instead of ending the run.
template <class Body>
auto* add(std::string const& name, Body body) {
  auto guarded = [body = std::move(body)](benchmark::State& state) {
    try {
      body(state);
    } catch (std::exception const& error) {
      any_failed() = true;
      state.SkipWithError(error.what());
    }
  };
  return benchmark::RegisterBenchmark(name.c_str(), std::move(guarded))->UseManualTime();
}

/// The quantities that one call of the measured function stands for. Zero means: not reported.
struct work {
  double bytes = 0;  ///< bytes that the benchmark is about, such as decoded weights
  double traffic_bytes =
      0;                  ///< the fewest bytes that must cross memory: each input read once, each output written once
  double operations = 0;  ///< floating-point or integer operations
  std::size_t peak_bytes = 0;
};

inline double median(std::vector<double> values) {
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) {
    return *middle;
  }
  return 0.5 * (*middle + *std::max_element(values.begin(), middle));
}

inline void count_peak(benchmark::State& state, work const& done) {
  if (done.peak_bytes > 0) {
    state.counters["peak_MiB"] = static_cast<double>(done.peak_bytes) / (1 << 20);
  }
}

}  // namespace bench
