// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The header that CUDA benchmarks include.
///
///     void decode(benchmark::State& state) {
///       bench::device_memory memory;
///       bench::device_array<tessera::bfloat16> weights(memory, std::size_t{1} << 28);
///       bench::fill(weights, tessera::testing::gauss{.sigma = 0.02}, 1, memory.stream());
///       memory.reset_peak();
///       double const seconds = bench::time_cold(state, memory.stream(), [&](cudaStream_t stream) { ... });
///       bench::report_cuda(state, seconds, {.bytes = ..., .traffic_bytes = ..., .peak_bytes = memory.peak_bytes()});
///     }
///     bench::registration const registered([] { bench::add_cuda("neuzip/decode/bf16/gauss/512MiB", decode); });
#pragma once

#include <cstdio>
#include <string>

#include "ceiling.cuh"

namespace bench {

/// What names of benchmarks begin with: "sm_80/" in a program that is compiled for sm_80 alone. Any later GPU runs its
/// code, whose results must not be taken for those of the GPU's own.
inline std::string of_architecture() {
#if defined(__CUDA_ARCH_LIST__)
  constexpr int compiled_for[] = {__CUDA_ARCH_LIST__};
  constexpr bool is_for_sm_80 = sizeof(compiled_for) == sizeof(int) && compiled_for[0] == 800;
  return is_for_sm_80 ? "sm_80/" : "";
#else
  return "";
#endif
}

/// Like `add`, for a benchmark that is left out where there is no device.
template <class Body>
auto* add_cuda(std::string const& name, Body body) {
  auto on_device = [body = std::move(body)](benchmark::State& state) {
    if (!has_device()) {
      skip(state, "no CUDA device");
      return;
    }
    body(state);
  };
  auto* const added = add(of_architecture() + name, std::move(on_device))->Iterations(1)->Unit(benchmark::kMicrosecond);
  return has_device() ? added : added->Repetitions(1);  // once is enough to say that there is no device
}

inline void report_cuda(benchmark::State& state, double seconds, work const& done) {
  if (!(seconds > 0)) {
    return;
  }
  if (done.bytes > 0) {
    state.counters["TBps"] = done.bytes / seconds * 1e-12;
  }
  if (done.traffic_bytes > 0) {
    state.counters["traffic_TBps"] = done.traffic_bytes / seconds * 1e-12;
    state.counters["of_copy"] = done.traffic_bytes / seconds / copy_ceiling();
  }
  if (done.operations > 0) {
    state.counters["TFLOPs"] = done.operations / seconds * 1e-12;
  }
  count_peak(state, done);
}

/// The first line that nvidia-smi prints for a query about the current device; empty without the tool.
inline std::string query_driver(std::string const& fields) {
  int device = 0;
  char bus[32] = {};
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "cudaDeviceGetPCIBusId");
  std::string const command =
      "nvidia-smi -i " + std::string(bus) + " --query-gpu=" + fields + " --format=csv,noheader 2>/dev/null";
  std::string line;
  if (std::FILE* const pipe = popen(command.c_str(), "r")) {
    char buffer[512];
    if (std::fgets(buffer, sizeof buffer, pipe) != nullptr) {
      line = buffer;
    }
    if (pclose(pipe) != 0) {
      line.clear();
    }
  }
  while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) {
    line.pop_back();
  }
  return line;
}

inline std::string runtime_version() {
  int version = 0;
  check(cudaRuntimeGetVersion(&version), "cudaRuntimeGetVersion");
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Describes the device in the output's context. The copy ceiling is measured here, before any benchmark has run.
inline void describe_device() {
  benchmark::AddCustomContext("cuda_compiler", "nvcc " + std::to_string(__CUDACC_VER_MAJOR__) + "." +
                                                   std::to_string(__CUDACC_VER_MINOR__) + "." +
                                                   std::to_string(__CUDACC_VER_BUILD__));
  benchmark::AddCustomContext("cuda_runtime", runtime_version());
  if (!has_device()) {
    benchmark::AddCustomContext("gpu", "none");
    return;
  }
  int device = 0;
  cudaDeviceProp properties{};
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  benchmark::AddCustomContext("gpu", properties.name);
  benchmark::AddCustomContext("gpu_arch", "sm_" + std::to_string(properties.major) + std::to_string(properties.minor));
  benchmark::AddCustomContext("driver", query_driver("driver_version"));
  benchmark::AddCustomContext("clocks_sm_mem_maxsm", query_driver("clocks.sm,clocks.mem,clocks.max.sm"));
  benchmark::AddCustomContext("power_limit", query_driver("power.limit"));
  benchmark::AddCustomContext("copy_tbps", std::to_string(copy_ceiling() * 1e-12));
}

/// Makes every program that includes this header describe the device.
inline bool const describes_device = (descriptions().push_back(&describe_device), true);

}  // namespace bench
