// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Memory of a CUDA device with nothing before and after it: a kernel that reads or writes one byte too many ends with
/// an error instead of going on with what it found.
///
///     tessera_test::guarded_memory memory(bytes);                // of the current device
///     memory.first(bytes);                                      // nothing lies before it
///     memory.last(bytes, 16);                                   // nothing lies behind it, but up to 15 bytes
///     tessera::cuda exec;
///     exec.memory = std::make_shared<guarded_resource>(guarded_edge::before);  // all buffers lie in such memory
///
/// Pages are the driver's (2 MiB). As much address space before and after them is reserved and never mapped. The
/// driver's functions are found at run time, so nothing but the runtime is linked.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/cuda.cuh>

namespace tessera_test {
namespace guarded_memory_detail {

/// A function of the driver, by its name and type; all of these came with CUDA 10.2.
template <class Function>
Function* driver_function(char const* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned introduced = 10020;
  cudaError_t const result = cudaGetDriverEntryPointByVersion(name, &entry, introduced, cudaEnableDefault, &found);
  if (result != cudaSuccess || found != cudaDriverEntryPointSuccess || entry == nullptr) {
    throw tessera::device_error(
        tessera::join("guarded_memory: the driver has no ", name, " (", cudaGetErrorName(result), ")"),
        static_cast<int>(result));
  }
  return reinterpret_cast<Function*>(entry);
}

inline void check_driver(CUresult result, char const* name) {
  if (result != CUDA_SUCCESS) {
    throw tessera::device_error(
        tessera::join("guarded_memory: ", name, " gives ", static_cast<int>(result), " but must give ", 0),
        static_cast<int>(result));
  }
}

}  // namespace guarded_memory_detail

/// At least `bytes` bytes of such memory. Throws device_error where the device has no virtual memory management or no
/// memory left.
class guarded_memory {
 public:
  explicit guarded_memory(std::int64_t bytes) {
    int device = 0;
    tessera::check_cuda(cudaGetDevice(&device), "guarded_memory", "cudaGetDevice");
    tessera::check_cuda(cudaFree(nullptr), "guarded_memory", "cudaFree");  // the driver's functions need a context
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    guarded_memory_detail::check_driver(
        guarded_memory_detail::driver_function<decltype(cuMemGetAllocationGranularity)>(
            "cuMemGetAllocationGranularity")(&page_, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "cuMemGetAllocationGranularity");
    size_ = tessera::align_up(tessera::max(static_cast<std::size_t>(bytes), std::size_t{1}), page_);
    guarded_memory_detail::check_driver(
        guarded_memory_detail::driver_function<decltype(cuMemCreate)>("cuMemCreate")(&memory_, size_, &properties, 0),
        "cuMemCreate");
    try {
      map(properties.location);
    } catch (...) {
      free();
      throw;
    }
  }
  guarded_memory(guarded_memory const&) = delete;
  guarded_memory& operator=(guarded_memory const&) = delete;
  ~guarded_memory() { free(); }

  /// The first byte of the memory.
  [[nodiscard]] std::byte* data() const { return reinterpret_cast<std::byte*>(begin_); }
  /// How many bytes the memory has.
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(size_); }
  /// The first `bytes` bytes.
  [[nodiscard]] std::byte* first(std::int64_t bytes) const {
    check_fits(bytes);
    return data();
  }
  /// The last `bytes` bytes that begin at a multiple of `alignment`.
  [[nodiscard]] std::byte* last(std::int64_t bytes, std::int64_t alignment) const {
    check_fits(bytes);
    return data() + (size() - bytes) / alignment * alignment;
  }

 private:
  void check_fits(std::int64_t bytes) const {
    tessera::check<tessera::shape_error>(bytes >= 0 && bytes <= size(), "guarded_memory: ", bytes,
                                         " bytes are asked for but there are ", size());
  }
  void map(CUmemLocation const& location) {
    guarded_memory_detail::check_driver(guarded_memory_detail::driver_function<decltype(cuMemAddressReserve)>(
                                            "cuMemAddressReserve")(&reserved_, size_ + 2 * page_, 0, 0, 0),
                                        "cuMemAddressReserve");
    CUdeviceptr const begin = reserved_ + page_;
    guarded_memory_detail::check_driver(
        guarded_memory_detail::driver_function<decltype(cuMemMap)>("cuMemMap")(begin, size_, 0, memory_, 0),
        "cuMemMap");
    begin_ = begin;
    CUmemAccessDesc access{};
    access.location = location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    guarded_memory_detail::check_driver(
        guarded_memory_detail::driver_function<decltype(cuMemSetAccess)>("cuMemSetAccess")(begin_, size_, &access, 1),
        "cuMemSetAccess");
  }
  /// Frees without throwing: an earlier error matters more than an error here.
  void free() noexcept {
    try {
      if (begin_ != 0) {
        guarded_memory_detail::driver_function<decltype(cuMemUnmap)>("cuMemUnmap")(begin_, size_);
      }
      if (reserved_ != 0) {
        guarded_memory_detail::driver_function<decltype(cuMemAddressFree)>("cuMemAddressFree")(reserved_,
                                                                                               size_ + 2 * page_);
      }
      guarded_memory_detail::driver_function<decltype(cuMemRelease)>("cuMemRelease")(memory_);
    } catch (tessera::device_error const&) {
    }
  }

  std::size_t page_ = 0;
  std::size_t size_ = 0;
  CUmemGenericAllocationHandle memory_ = 0;
  CUdeviceptr reserved_ = 0;
  CUdeviceptr begin_ = 0;
};

/// Where nothing lies.
enum class guarded_edge { before, behind };

/// A memory resource whose allocations are guarded, each on one side. Freeing waits for the device.
class guarded_resource {
 public:
  explicit guarded_resource(guarded_edge edge) : edge_(edge) {}

  void* allocate(std::size_t bytes, std::size_t alignment, tessera::stream_handle) {
    auto const size = static_cast<std::int64_t>(bytes);
    auto made = std::make_unique<guarded_memory>(size);
    void* const pointer =
        edge_ == guarded_edge::before ? made->first(size) : made->last(size, static_cast<std::int64_t>(alignment));
    std::lock_guard const lock(mutex_);
    known_.emplace(pointer, std::move(made));
    return pointer;
  }
  void deallocate(void* pointer, std::size_t, std::size_t, tessera::stream_handle) noexcept {
    static_cast<void>(cudaDeviceSynchronize());  // the next call that is checked gets an error
    std::lock_guard const lock(mutex_);
    known_.erase(pointer);
  }

 private:
  guarded_edge edge_;
  std::mutex mutex_;
  std::map<void*, std::unique_ptr<guarded_memory>> known_;
};

}  // namespace tessera_test
