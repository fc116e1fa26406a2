// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/exec/buffer.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/guarded_memory.cuh"

using namespace tessera;
using tessera_test::cuda_ok;
using tessera_test::guarded_edge;
using tessera_test::guarded_memory;
using tessera_test::guarded_resource;

namespace {

/// Whether the runtime knows an address as device memory.
bool is_mapped(std::byte const* address) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  return attributes.type == cudaMemoryTypeDevice;
}

}  // namespace

TEST_CASE("guarded memory can be written from its first byte to its last, and nothing is mapped around it", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  guarded_memory const memory(3'000'000);
  REQUIRE(memory.size() >= 3'000'000);
  cuda_ok(cudaMemset(memory.data(), 0x5a, static_cast<std::size_t>(memory.size())));
  std::vector<unsigned char> back(static_cast<std::size_t>(memory.size()));
  cuda_ok(cudaMemcpy(back.data(), memory.data(), back.size(), cudaMemcpyDeviceToHost));
  CHECK(back.front() == 0x5a);
  CHECK(back.back() == 0x5a);
  CHECK(is_mapped(memory.data()));
  CHECK(is_mapped(memory.data() + memory.size() - 1));
  CHECK_FALSE(is_mapped(memory.data() - 1));
  CHECK_FALSE(is_mapped(memory.data() + memory.size()));
}

TEST_CASE("what is asked for lies at the edges of guarded memory", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  guarded_memory const memory(1);
  std::byte* const end = memory.data() + memory.size();
  CHECK(memory.first(100) == memory.data());
  CHECK(memory.last(100, 1) + 100 == end);
  CHECK(memory.last(100, 16) + 112 == end);
  CHECK(memory.last(memory.size(), 16) == memory.data());
  CHECK_THROWS_AS(memory.first(memory.size() + 1), shape_error);
  CHECK_THROWS_AS(memory.last(memory.size() + 1, 1), shape_error);
}

TEST_CASE("buffers of a guarded resource have nothing mapped on one side", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (auto const edge : {guarded_edge::before, guarded_edge::behind}) {
    tessera::cuda exec;
    exec.memory = std::make_shared<guarded_resource>(edge);
    buffer<float> const first(exec, 1024);
    buffer<float> const second(exec, 1024);
    for (auto const* of : {&first, &second}) {
      auto const* const begin = reinterpret_cast<std::byte const*>(of->data());
      CHECK(is_mapped(begin));
      CHECK(is_mapped(begin + 4095));
      CHECK(is_mapped(begin - 1) == (edge == guarded_edge::behind));
      CHECK(is_mapped(begin + 4096) == (edge == guarded_edge::before));
    }
  }
}
