// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Executors for the current streams of CUDA devices, and the parts of their backend. Each part is compiled by itself,
/// since nvcc takes long for one and several can be compiled at once.
#pragma once

#include <tessera/exec/cuda.cuh>

#include "backend.hpp"
#include "tensors.hpp"

namespace tessera_torch {

struct cuda_device {
  using executor_type = tessera::cuda;
  /// The executor of a stream, kept for each stream that was ever current: a call may be captured in a graph, and
  /// making an executor may not.
  static executor_type const& executor(torch::Device device);
  static torch::Tensor host_bytes(std::int64_t bytes);
};

weights_backend& cuda_weights();
loss_backend& cuda_loss();
attention_backend& cuda_attention();
caches_backend& cuda_caches();

}  // namespace tessera_torch
