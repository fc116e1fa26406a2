// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Weights for tests of parameter_store on CPUs, checks of what a store holds, and memory that runs out.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <new>
#include <vector>

#include <tessera/algorithm/weights/parameter_store.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/memory.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/testing/generators.hpp>

namespace tessera_test {

inline std::vector<tessera::bfloat16> gaussian(std::int64_t count, std::uint64_t seed) {
  std::vector<tessera::bfloat16> values(static_cast<std::size_t>(count));
  tessera::testing::fill(tessera::testing::gauss{.sigma = 0.02}, seed, values.data(), values.size());
  return values;
}

/// Weights of which every pattern is as likely as any other, so that no coder makes their exponents smaller.
inline std::vector<tessera::bfloat16> incompressible(std::int64_t count, std::uint64_t seed) {
  std::vector<tessera::bfloat16> values(static_cast<std::size_t>(count));
  tessera::testing::fill(tessera::testing::uniform_bits{}, seed, values.data(), values.size());
  return values;
}

template <class View>
bool holds(View view, std::vector<tessera::bfloat16> const& expected) {
  if (view.size() != static_cast<std::int64_t>(expected.size())) {
    return false;
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (to_bits(view[static_cast<std::int64_t>(i)]) != to_bits(expected[i])) {
      return false;
    }
  }
  return true;
}

template <class Store>
bool store_holds(Store& store, tessera::parameter_id id, std::vector<tessera::bfloat16> const& expected) {
  auto const lease = store.acquire(id);
  return holds(lease.weights(), expected);
}

template <class Exec>
void overwrite(tessera::parameter_store<tessera::neuzip, Exec>& store, tessera::parameter_id id,
               std::vector<tessera::bfloat16> const& values) {
  auto lease = store.acquire(id);
  Exec().copy(values, lease.weights());
  store.update(id, lease);
}

/// Memory that counts its allocations and knows where they are. After `left` more allocations there is none.
struct ledger {
  std::map<void*, std::size_t> live;
  std::int64_t current = 0;
  std::int64_t peak = 0;
  int allocations = 0;
  int left = std::numeric_limits<int>::max();

  void* allocate(std::size_t bytes, std::size_t alignment, tessera::stream_handle) {
    if (left-- <= 0) {
      throw std::bad_alloc();
    }
    void* const pointer = tessera::host_memory::allocate(bytes, alignment);
    live[pointer] = bytes;
    current += static_cast<std::int64_t>(bytes);
    peak = current > peak ? current : peak;
    ++allocations;
    return pointer;
  }
  void deallocate(void* pointer, std::size_t bytes, std::size_t alignment, tessera::stream_handle) noexcept {
    current -= static_cast<std::int64_t>(live.at(pointer));
    live.erase(pointer);
    tessera::host_memory::deallocate(pointer, bytes, alignment);
  }
};

/// The bytes of a region of a plan; -1 if there is no such region.
inline std::int64_t planned(tessera::workspace_plan const& plan, char const* region) {
  for (tessera::workspace_plan::entry const& entry : plan.entries()) {
    if (entry.name == region) {
      return entry.bytes;
    }
  }
  return -1;
}

/// The numbers of weights of a model's parameters.
struct model_shape {
  std::vector<std::int64_t> counts;
  double raw_bytes = 0;  ///< of all weights in bf16

  void add(std::int64_t rows, std::int64_t columns) {
    counts.push_back(rows * columns);
    raw_bytes += 2.0 * static_cast<double>(rows * columns);
  }
};

/// Llama-3-8B: 32 layers of 4096 channels, and an embedding and a classifier of 128256 tokens.
inline model_shape llama_3_8b() {
  constexpr std::int64_t channels = 4096;
  model_shape model;
  model.add(128256, channels);
  for (int layer = 0; layer < 32; ++layer) {
    for (std::int64_t const rows : {4096, 1024, 1024, 4096, 14336, 14336, 14336, 1, 1}) {
      model.add(rows, channels);
    }
  }
  model.add(1, channels);
  model.add(128256, channels);
  return model;
}

/// What a plan takes beside the streams, in thousandths of a model's raw bytes.
inline long overhead_of(tessera::workspace_plan const& plan, double raw_bytes) {
  return std::lround(1000.0 * static_cast<double>(plan.bytes() - planned(plan, "streams, at most")) / raw_bytes);
}

}  // namespace tessera_test
