// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Broken streams of compressed weights, decoded by the GPU and by the CPU.
#include <chrono>

#include <tessera/exec/cuda.cuh>

#include "support/codecs.cuh"
#include "support/cuda.cuh"
// The tests count these differences as well.
#include "../../tests/support/stream_differences.cuh"

namespace {

/// Counts how many of 100,000 broken streams the GPU treats differently from the CPU: `gpu_differences`, which the
/// tests want to be 0.
void count_differences(benchmark::State& state) {
  for (auto iteration : state) {
    static_cast<void>(iteration);
    auto const begin = std::chrono::steady_clock::now();
    tessera_test::stream_tally const found = tessera_test::compare_broken_streams(tessera::cuda{}, 100'000);
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    state.counters["broken_streams"] = static_cast<double>(found.streams);
    state.counters["refused_streams"] = static_cast<double>(found.refused);
    state.counters["gpu_differences"] = static_cast<double>(found.differences);
  }
}

bench::registration const registered([] {
  bench::add_cuda("neuzip/broken_streams", count_differences)->Repetitions(1);
});

}  // namespace
