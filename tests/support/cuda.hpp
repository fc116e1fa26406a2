// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Shared parts of CUDA tests: skipping without a device, and checked runtime calls.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include <tessera/exec/cuda.cuh>

#include "support/catch.hpp"

namespace tessera_test {

/// Empty when a CUDA device can be used, else the reason why not.
inline std::string why_no_gpu() {
  int count = 0;
  cudaError_t const result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess) {
    return std::string("no CUDA device: ") + cudaGetErrorString(result);
  }
  return count > 0 ? "" : "no CUDA device: the driver reports 0 devices";
}

/// Throws with the runtime's message when a CUDA runtime call fails.
inline void cuda_ok(cudaError_t result) {
  if (result != cudaSuccess) {
    throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(result));
  }
}

/// The first number of the current device's compute capability.
inline int compute_capability_major() {
  int device = 0;
  int major = 0;
  cuda_ok(cudaGetDevice(&device));
  cuda_ok(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major;
}

/// A program of sm_90 that does nothing: whether there is code of it says whether programs of sm_90 run.
struct idle_from_sm_90 {
  static constexpr int lanes = 32;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
  struct scratch_type {};
  __device__ void operator()(tessera::cuda_warp const&, std::int64_t, scratch_type&) const {}
};

/// Whether the current device runs the instructions of sm_90, and programs with them are compiled for it: code for
/// sm_80 has none, whatever the device.
inline bool has_sm_90() {
  return tessera::cuda().has<idle_from_sm_90>();
}

/// Whether programs of sm_90a are compiled, and run on the current device.
inline bool is_hopper() {
  return tessera::cuda::is_compiled_for<900> && compute_capability_major() == 9;
}

}  // namespace tessera_test

/// The first line of every CUDA test: without a device the test reports itself as skipped, or fails when the
/// environment has TESSERA_REQUIRE_GPU=1.
#define TESSERA_NEEDS_CUDA()                                                                 \
  do {                                                                                       \
    if (auto const tessera_reason = ::tessera_test::why_no_gpu(); !tessera_reason.empty()) { \
      if (::tessera_test::environment_asks_for("TESSERA_REQUIRE_GPU")) {                     \
        FAIL("TESSERA_REQUIRE_GPU is set, but there is " << tessera_reason);                 \
      }                                                                                      \
      ::tessera_test::report_skip(tessera_reason);                                           \
      SUCCEED("skipped");                                                                    \
      return;                                                                                \
    }                                                                                        \
  } while (false)
