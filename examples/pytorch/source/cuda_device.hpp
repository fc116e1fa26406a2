// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Executors for the current streams of CUDA devices. tensors.hpp describes a Device.
#pragma once

#include <cstdint>

#include <tessera/exec/cuda.cuh>

#include "tensors.hpp"

namespace tessera_torch {

struct cuda_device {
  using executor_type = tessera::cuda;
  static constexpr char const* name = "cuda";
  static constexpr bool is_host = false;
  static bool has(torch::stable::Device const& device) { return device.is_cuda(); }
  /// The executor of a stream, kept for each stream that was ever current: a call may be captured in a graph, and
  /// making an executor may not.
  static executor_type const& executor(torch::stable::Device const& device);
  static Tensor host_bytes(std::int64_t bytes);
};

}  // namespace tessera_torch
