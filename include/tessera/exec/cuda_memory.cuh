// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Memory resources that need CUDA: `device_memory` (stream-ordered, from a pool of its own) and `pinned_memory` (host
/// memory that the device can read and with which copies can overlap).
///
///     device_memory pool;                               // of the current device
///     tessera::cuda exec{.stream = s, .memory = pool};
///     buffer<float> staging(count, pinned);             // with `pinned_memory pinned;`
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <limits>

#include <tessera/core/check.hpp>
#include <tessera/exec/memory.hpp>

namespace tessera {
inline namespace v0 {

/// Throws a `device_error` that names the function, the runtime's call, and the runtime's error, unless `result` is
/// success.
inline void check_cuda(cudaError_t result, char const* function, char const* call) {
  if (result == cudaSuccess) {
    return;
  }
  char const* const hint = result == cudaErrorIllegalAddress
                               ? "; views for CUDA are of memory that the device reads, not of the host's"
                               : "";
  throw device_error(
      join(function, ": ", call, ": ", cudaGetErrorString(result), " (", cudaGetErrorName(result), ")", hint),
      static_cast<int>(result));
}

namespace detail {

/// Does what check_cuda does, and says how many bytes were asked for.
inline void check_allocation(cudaError_t result, std::size_t bytes, char const* function, char const* call) {
  if (result != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // reported here, so that the next call does not report it again
    check_cuda(result, function, join(call, " of ", bytes, " bytes").c_str());
  }
}

/// Makes a device current for as long as this object lives.
class device_guard {
 public:
  explicit device_guard(int device) {
    check_cuda(cudaGetDevice(&before_), "device_guard", "cudaGetDevice");
    changed_ = before_ != device;
    if (changed_) {
      check_cuda(cudaSetDevice(device), "device_guard", "cudaSetDevice");
    }
  }
  device_guard(device_guard const&) = delete;
  device_guard& operator=(device_guard const&) = delete;
  ~device_guard() {
    if (changed_) {
      static_cast<void>(cudaSetDevice(before_));
    }
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace detail

/// Device memory by `cudaMallocAsync` from a private pool that keeps memory that is given back. Only the destructor
/// waits, for all work of the device.
class device_memory {
 public:
  /// A pool on the current device.
  device_memory() {
    check_cuda(cudaGetDevice(&device_), "device_memory", "cudaGetDevice");
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device_;
    check_cuda(cudaMemPoolCreate(&pool_, &properties), "device_memory", "cudaMemPoolCreate");
    std::uint64_t keep = std::numeric_limits<std::uint64_t>::max();
    check_cuda(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep), "device_memory",
               "cudaMemPoolSetAttribute");
  }
  device_memory(device_memory const&) = delete;
  device_memory& operator=(device_memory const&) = delete;
  /// Waits for the device: memory is given back in the order of streams, and where that is still to come when a pool is
  /// destroyed, driver 580.159 may crash in a later pool's first allocation, after virtual memory was mapped between.
  ~device_memory() {
    try {
      detail::device_guard const guard(device_);
      static_cast<void>(cudaDeviceSynchronize());
    } catch (device_error const&) {  // the process ends, and the driver with it
    }
    static_cast<void>(cudaMemPoolDestroy(pool_));
  }

  void* allocate(std::size_t bytes, std::size_t alignment, stream_handle stream) {
    check<value_error>(alignment <= device_alignment, "device_memory.allocate: an alignment of ", alignment,
                       " is asked for but at most ", device_alignment, " is given");
    void* pointer = nullptr;
    detail::check_allocation(cudaMallocFromPoolAsync(&pointer, bytes, pool_, static_cast<cudaStream_t>(stream)), bytes,
                             "device_memory.allocate", "cudaMallocFromPoolAsync");
    return pointer;
  }
  void deallocate(void* pointer, std::size_t, std::size_t, stream_handle stream) noexcept {
    static_cast<void>(cudaFreeAsync(pointer, static_cast<cudaStream_t>(stream)));
  }

  /// The device that the memory is on.
  [[nodiscard]] int device() const { return device_; }
  /// The most that was allocated at a time, in the pool's own granules; `tracking_memory` counts exact bytes.
  [[nodiscard]] std::size_t peak_bytes() const {
    std::uint64_t bytes = 0;
    check_cuda(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemHigh, &bytes), "device_memory.peak_bytes",
               "cudaMemPoolGetAttribute");
    return static_cast<std::size_t>(bytes);
  }
  /// The pool, for functions of the CUDA runtime.
  [[nodiscard]] cudaMemPool_t native() const { return pool_; }

 private:
  static constexpr std::size_t device_alignment = 256;  // the CUDA programming guide promises this much

  int device_ = 0;
  cudaMemPool_t pool_ = nullptr;
};

/// Page-locked memory of the host. Allocating it and giving it back take long and may wait for the device, so do it
/// once. The amount that a host can pin is often limited; beyond it a device_error says how many bytes were asked for.
struct pinned_memory {
  static void* allocate(std::size_t bytes, std::size_t, stream_handle = nullptr) {
    void* pointer = nullptr;
    detail::check_allocation(cudaMallocHost(&pointer, bytes), bytes, "pinned_memory.allocate", "cudaMallocHost");
    return pointer;
  }
  static void deallocate(void* pointer, std::size_t, std::size_t, stream_handle = nullptr) noexcept {
    static_cast<void>(cudaFreeHost(pointer));
  }
};

}  // namespace v0
}  // namespace tessera
