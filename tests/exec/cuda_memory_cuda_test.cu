// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/cuda_memory.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/guarded_memory.cuh"

using namespace tessera;
using tessera_test::contains;
using tessera_test::guarded_edge;
using tessera_test::guarded_resource;

namespace {

cudaPointerAttributes attributes_of(void const* pointer) {
  cudaPointerAttributes attributes{};
  tessera_test::cuda_ok(cudaPointerGetAttributes(&attributes, pointer));
  return attributes;
}

}  // namespace

TEST_CASE("a failure of the runtime names the function, the call and the reason", "[host]") {
  CHECK_NOTHROW(check_cuda(cudaSuccess, "buffer", "cudaMalloc"));
  try {
    check_cuda(cudaErrorInvalidValue, "buffer", "cudaMalloc");
    FAIL("nothing was thrown");
  } catch (device_error const& e) {
    CHECK(e.code() == static_cast<int>(cudaErrorInvalidValue));
    CHECK(std::string(e.what()) == "buffer: cudaMalloc: invalid argument (cudaErrorInvalidValue)");
  }
  CHECK_THROWS_WITH(check_cuda(cudaErrorIllegalAddress, "cuda.wait", "cudaStreamSynchronize"),
                    "cuda.wait: cudaStreamSynchronize: an illegal memory access was encountered "
                    "(cudaErrorIllegalAddress); views for CUDA are of memory that the device reads, not of the host's");
}

TEST_CASE("memory that cannot be had is refused with how many bytes it was", "[host]") {
  CHECK_NOTHROW(detail::check_allocation(cudaSuccess, 12, "pinned_memory.allocate", "cudaMallocHost"));
  CHECK_THROWS_WITH(
      detail::check_allocation(cudaErrorMemoryAllocation, 268435456, "pinned_memory.allocate", "cudaMallocHost"),
      "pinned_memory.allocate: cudaMallocHost of 268435456 bytes: out of memory (cudaErrorMemoryAllocation)");
}

TEST_CASE("device memory is aligned, on its device, and counted at its peak", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  device_memory pool;
  void* const a = pool.allocate(1000, 256, nullptr);
  void* const b = pool.allocate(1 << 20, 1, nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(a) % 256 == 0);
  CHECK(attributes_of(a).type == cudaMemoryTypeDevice);
  CHECK(attributes_of(b).device == pool.device());
  auto const peak = pool.peak_bytes();
  CHECK(peak >= 1000 + (1 << 20));
  pool.deallocate(a, 1000, 256, nullptr);
  pool.deallocate(b, 1 << 20, 1, nullptr);
  void* const c = pool.allocate(1 << 20, 256, nullptr);
  CHECK(pool.peak_bytes() == peak);
  pool.deallocate(c, 1 << 20, 256, nullptr);
  CHECK_THROWS_WITH(pool.allocate(8, 512, nullptr),
                    "device_memory.allocate: an alignment of 512 is asked for but at most 256 is given");
  CHECK_THROWS_AS(pool.allocate(std::size_t{1} << 60, 256, nullptr), device_error);
  CHECK_THROWS_WITH(pool.allocate(std::size_t{1} << 60, 256, nullptr),
                    contains("device_memory.allocate: cudaMallocFromPoolAsync of 1152921504606846976 bytes: "));
  CHECK(cudaGetLastError() == cudaSuccess);
}

// Without a wait in ~device_memory() this crashes in most runs, in an allocation.
TEST_CASE("pools can be destroyed while memory is given back, beside virtual memory", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (int round = 0; round < 60; ++round) {
    for (guarded_edge const edge : {guarded_edge::before, guarded_edge::behind}) {
      tessera::cuda exec;
      exec.memory = std::make_shared<guarded_resource>(edge);
      buffer<float> const guarded(exec, 4000);
      exec.wait();
    }
    for (int i = 0; i < 3; ++i) {
      device_memory pool;
      void* const block = pool.allocate(360000, 256, nullptr);
      CHECK(cudaMemset(block, 1, 360000) == cudaSuccess);
      pool.deallocate(block, 360000, 256, nullptr);
    }
  }
}

TEST_CASE("pinned memory belongs to the host, and the device can reach it", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  void* const block = pinned_memory::allocate(4096, 256);
  CHECK(attributes_of(block).type == cudaMemoryTypeHost);
  CHECK(attributes_of(block).devicePointer != nullptr);
  std::memset(block, 1, 4096);
  pinned_memory::deallocate(block, 4096, 256);
}

TEST_CASE("what a host cannot pin for a GPU is refused with how many bytes it was", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  try {
    static_cast<void>(pinned_memory::allocate(std::size_t{1} << 60, 256));
    FAIL("nothing was thrown");
  } catch (device_error const& e) {
    CHECK(e.code() == static_cast<int>(cudaErrorMemoryAllocation));
    CHECK(std::string(e.what()) ==
          "pinned_memory.allocate: cudaMallocHost of 1152921504606846976 bytes: out of memory "
          "(cudaErrorMemoryAllocation)");
  }
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("a guard makes its device current and sets back the one before", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  int devices = 0;
  tessera_test::cuda_ok(cudaGetDeviceCount(&devices));
  int before = -1;
  tessera_test::cuda_ok(cudaGetDevice(&before));
  int const other = devices - 1;
  {
    detail::device_guard const guard(other);
    int within = -1;
    tessera_test::cuda_ok(cudaGetDevice(&within));
    CHECK(within == other);
  }
  int after = -1;
  tessera_test::cuda_ok(cudaGetDevice(&after));
  CHECK(after == before);
  CHECK_THROWS_AS(detail::device_guard(devices), device_error);
  static_cast<void>(cudaGetLastError());
}
