// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "cuda_device.hpp"

namespace tessera_torch {
namespace {

/// PyTorch's allocator as a memory resource, in the order of a stream of a device, which need not be the current one.
struct torch_memory {
  c10::DeviceIndex device;

  void* allocate(std::size_t bytes, std::size_t, tessera::stream_handle stream) const {
    c10::cuda::CUDAGuard const guard(device);
    return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, static_cast<cudaStream_t>(stream));
  }
  static void deallocate(void* pointer, std::size_t, std::size_t, tessera::stream_handle) noexcept {
    c10::cuda::CUDACachingAllocator::raw_delete(pointer);
  }
};

}  // namespace

tessera::cuda const& cuda_device::executor(torch::Device device) {
  static std::mutex mutex;
  static std::map<std::pair<c10::DeviceIndex, cudaStream_t>, std::unique_ptr<executor_type>> known;
  c10::DeviceIndex const index = device.has_index() ? device.index() : c10::cuda::current_device();
  c10::cuda::CUDAGuard const guard(index);
  cudaStream_t const stream = at::cuda::getCurrentCUDAStream(index);
  std::lock_guard const lock(mutex);
  auto& found = known[{index, stream}];
  if (found == nullptr) {
    found.reset(new executor_type{.stream = stream, .memory = std::make_shared<torch_memory>(torch_memory{index})});
  }
  return *found;
}

torch::Tensor cuda_device::host_bytes(std::int64_t bytes) {
  return torch::empty({bytes + tessera::workspace_plan::alignment},
                      torch::TensorOptions().dtype(torch::kUInt8).pinned_memory(true));
}

backend& cuda_backend() {
  static backend found{cuda_weights(), cuda_loss(), cuda_attention(), cuda_caches(),
                       [](torch::Device device) { cuda_device::executor(device).wait(); }};
  return found;
}

}  // namespace tessera_torch
