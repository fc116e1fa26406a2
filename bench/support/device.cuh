// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The parts of the CUDA runtime that benchmarks need, as owning types: errors, a stream, events, memory that counts.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include <tessera/exec/memory.hpp>

namespace bench {

inline void check(cudaError_t status, char const* what) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
  }
}

inline bool has_device() {
  int count = 0;
  bool const found = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  (void)cudaGetLastError();  // a later call must not report the error of this one
  return found;
}

inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}

class event {
 public:
  event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~event() { cudaEventDestroy(event_); }
  event(event const&) = delete;
  event& operator=(event const&) = delete;
  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  /// Lets what is enqueued in `stream` from now on wait for what was recorded.
  void hold_up(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event_), "cudaStreamWaitEvent"); }
  double seconds_since(event const& start) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start.event_, event_), "cudaEventElapsedTime");
    return 1e-3 * milliseconds;
  }

 private:
  cudaEvent_t event_{};
};

/// A stream with a private stream-ordered pool that counts what is allocated from it. It is a memory resource of the
/// library, so an executor can use it: `tessera::cuda{.stream = memory.stream(), .memory = memory}`.
class device_memory {
 public:
  device_memory() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    check(cudaGetDevice(&properties.location.id), "cudaGetDevice");
    check(cudaMemPoolCreate(&pool_, &properties), "cudaMemPoolCreate");
    std::uint64_t keep = UINT64_MAX;  // freed memory stays in the pool: later calls do not pay for mapping it
    check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep), "cudaMemPoolSetAttribute");
  }
  ~device_memory() {
    cudaStreamSynchronize(stream_);
    cudaMemPoolDestroy(pool_);
    cudaStreamDestroy(stream_);
  }
  device_memory(device_memory const&) = delete;
  device_memory& operator=(device_memory const&) = delete;

  void* allocate(std::size_t bytes, std::size_t /*alignment: the pool gives 256*/, tessera::stream_handle stream) {
    void* pointer = nullptr;
    check(cudaMallocFromPoolAsync(&pointer, bytes, pool_, static_cast<cudaStream_t>(stream)),
          "cudaMallocFromPoolAsync");
    live_ += bytes;
    peak_ = std::max(peak_, live_);
    return pointer;
  }
  void deallocate(void* pointer, std::size_t bytes, std::size_t /*alignment*/, tessera::stream_handle stream) noexcept {
    live_ -= bytes;
    cudaFreeAsync(pointer, static_cast<cudaStream_t>(stream));
  }

  cudaStream_t stream() const { return stream_; }
  std::size_t live_bytes() const { return live_; }
  std::size_t peak_bytes() const { return peak_; }
  /// Forgets earlier peaks, such as the set-up's; memory that is allocated still counts.
  void reset_peak() { peak_ = live_; }
  void wait() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_{};
  cudaMemPool_t pool_{};
  std::size_t live_ = 0;
  std::size_t peak_ = 0;
};

static_assert(tessera::MemoryResource<device_memory>);

/// `count` elements from a device_memory, which must outlive them.
template <class T>
class device_array {
 public:
  device_array(device_memory& memory, std::size_t count)
      : memory_(&memory),
        count_(count),
        data_(static_cast<T*>(memory.allocate(count * sizeof(T), alignof(T), memory.stream()))) {}
  ~device_array() { memory_->deallocate(data_, bytes(), alignof(T), memory_->stream()); }
  device_array(device_array const&) = delete;
  device_array& operator=(device_array const&) = delete;

  T* data() const { return data_; }
  std::size_t size() const { return count_; }
  std::size_t bytes() const { return count_ * sizeof(T); }

 private:
  device_memory* memory_;
  std::size_t count_;
  T* data_;
};

}  // namespace bench
