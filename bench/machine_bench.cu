// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Ceilings of the machine: rates of device memory that other benchmarks are compared with. TBps counts bytes read plus
/// bytes written, so that a copy moves twice its size.
#include "support/cuda.cuh"

namespace {

void measure(benchmark::State& state, bench::transfer kind) {
  bench::ceiling_buffers buffers;
  double const seconds =
      bench::time_cold(state, buffers.memory.stream(), [&](cudaStream_t stream) { buffers.run(kind, stream); });
  double const traffic = buffers.traffic(kind);
  bench::report_cuda(state, seconds,
                     {.bytes = traffic, .traffic_bytes = traffic, .peak_bytes = buffers.memory.peak_bytes()});
}

bench::registration const registered([] {
  using bench::transfer;
  bench::add_cuda("machine/copy/memcpy/2GiB", [](benchmark::State& state) { measure(state, transfer::memcpy); });
  bench::add_cuda("machine/copy/kernel/2GiB", [](benchmark::State& state) { measure(state, transfer::copy); });
  bench::add_cuda("machine/read/2GiB", [](benchmark::State& state) { measure(state, transfer::read); });
  bench::add_cuda("machine/write/2GiB", [](benchmark::State& state) { measure(state, transfer::write); });
});

}  // namespace
