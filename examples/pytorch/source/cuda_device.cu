// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <map>
#include <memory>
#include <mutex>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <utility>

#include "cuda_device.hpp"

namespace tessera_torch {
namespace {

cudaStream_t current_stream(std::int32_t device) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  return static_cast<cudaStream_t>(stream);
}

/// Makes a stream the current one for as long as this lives.
class stream_guard {
 public:
  stream_guard(void* stream, std::int32_t device) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_create_cuda_stream_guard(stream, device, &guard_));
  }
  stream_guard(stream_guard const&) = delete;
  stream_guard& operator=(stream_guard const&) = delete;
  ~stream_guard() { static_cast<void>(aoti_torch_delete_cuda_stream_guard(guard_)); }

 private:
  CUDAStreamGuardHandle guard_ = nullptr;
};

/// PyTorch's allocator as a memory resource, in the order of a stream of a device, which need not be the current one.
struct torch_memory {
  std::int32_t device;

  void* allocate(std::size_t bytes, std::size_t, tessera::stream_handle stream) const {
    stream_guard const guard(stream, device);  // the allocator takes the current stream of the current device
    void* memory = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_caching_allocator_raw_alloc(bytes, &memory));
    return memory;
  }
  static void deallocate(void* pointer, std::size_t, std::size_t, tessera::stream_handle) noexcept {
    static_cast<void>(aoti_torch_cuda_caching_allocator_raw_delete(pointer));
  }
};

void wait(Tensor on) {
  cuda_device::executor(device_of<cuda_device>(on, {"wait", "elements"})).wait();
}

}  // namespace

tessera::cuda const& cuda_device::executor(torch::stable::Device const& device) {
  static std::mutex mutex;
  static std::map<std::pair<std::int32_t, cudaStream_t>, std::unique_ptr<executor_type>> known;
  std::int32_t const index = device.has_index() ? device.index() : torch::stable::accelerator::getCurrentDeviceIndex();
  cudaStream_t const stream = current_stream(index);
  std::lock_guard const lock(mutex);
  auto& found = known[{index, stream}];
  if (found == nullptr) {
    torch::stable::accelerator::DeviceGuard const guard(index);
    found.reset(new executor_type{.stream = stream, .memory = std::make_shared<torch_memory>(torch_memory{index})});
  }
  return *found;
}

Tensor cuda_device::host_bytes(std::int64_t bytes) {
  std::int64_t const size = bytes + tessera::workspace_plan::alignment;
  std::int64_t const stride = 1;
  AtenTensorHandle made = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided_pinned(1, &size, &stride, shim_number(ScalarType::Byte),
                                                         aoti_torch_device_type_cpu(), 0, &made));
  return Tensor(made);
}

}  // namespace tessera_torch

STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CUDA, m) {
  m.impl("wait", TORCH_BOX(&tessera_torch::wait));
}
