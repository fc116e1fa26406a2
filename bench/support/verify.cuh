// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks results of benchmarks on the device: equal bytes, and the entropy of the data that were compressed.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include <tessera/core/precision.hpp>

#include "device.cuh"

namespace bench {

template <class Unused = void>  // a template, so that two objects that include this header can be linked
__global__ void compare_kernel(unsigned char const* a, unsigned char const* b, std::size_t bytes,
                               unsigned long long* differing) {
  std::size_t const step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  unsigned long long found = 0;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < bytes; i += step) {
    found += a[i] != b[i] ? 1 : 0;
  }
  if (found > 0) {
    atomicAdd(differing, found);
  }
}

inline int verify_blocks() {
  return 8 * device_attribute(cudaDevAttrMultiProcessorCount);
}

/// Waits for the device, then throws unless `bytes` bytes at both addresses are the same.
inline void require_same_bytes(void const* a, void const* b, std::size_t bytes, device_memory& memory,
                               std::string const& what) {
  device_array<unsigned long long> differing(memory, 1);
  unsigned long long count = 0;
  check(cudaDeviceSynchronize(), "measured calls");
  check(cudaMemsetAsync(differing.data(), 0, sizeof(count), memory.stream()), "cudaMemsetAsync");
  compare_kernel<><<<verify_blocks(), 256, 0, memory.stream()>>>(
      static_cast<unsigned char const*>(a), static_cast<unsigned char const*>(b), bytes, differing.data());
  check(cudaGetLastError(), "compare_kernel");
  check(cudaMemcpyAsync(&count, differing.data(), sizeof(count), cudaMemcpyDeviceToHost, memory.stream()),
        "cudaMemcpyAsync");
  memory.wait();
  if (count != 0) {
    throw std::runtime_error(what + ": " + std::to_string(count) + " of " + std::to_string(bytes) + " bytes differ");
  }
}

inline constexpr int exponent_bins = 256;

template <class T>
__global__ void exponent_kernel(T const* weights, std::size_t count, unsigned long long* counts) {
  using traits = tessera::scalar_traits<T>;
  __shared__ unsigned found[exponent_bins];
  for (unsigned i = threadIdx.x; i < exponent_bins; i += blockDim.x) {
    found[i] = 0;
  }
  __syncthreads();
  std::size_t const step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    auto const bits = static_cast<std::uint32_t>(tessera::to_bits(weights[i]));
    atomicAdd(&found[(bits >> traits::mantissa_bits) & ((1U << traits::exponent_bits) - 1)], 1U);
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < exponent_bins; i += blockDim.x) {
    if (found[i] > 0) {
      atomicAdd(&counts[i], static_cast<unsigned long long>(found[i]));
    }
  }
}

/// The zeroth-order bound of lossless coding by exponents: the entropy of the exponents of all weights that were added,
/// plus their signs and mantissas uncoded.
template <class T>
class entropy_bound {
 public:
  explicit entropy_bound(device_memory& memory) : memory_(memory), counts_(memory, exponent_bins) {
    check(cudaMemsetAsync(counts_.data(), 0, counts_.bytes(), memory.stream()), "cudaMemsetAsync");
    memory.wait();
  }
  /// Adds weights, which must be ready.
  void add(T const* weights, std::size_t count) {
    exponent_kernel<<<verify_blocks(), 256, 0, memory_.stream()>>>(weights, count, counts_.data());
    check(cudaGetLastError(), "exponent_kernel");
    memory_.wait();
  }
  /// The bound in bits a weight.
  double bits() const {
    std::array<unsigned long long, exponent_bins> counts{};
    check(cudaMemcpy(counts.data(), counts_.data(), counts_.bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    double total = 0;
    for (unsigned long long const count : counts) {
      total += static_cast<double>(count);
    }
    double entropy = 0;
    for (unsigned long long const count : counts) {
      double const share = static_cast<double>(count) / total;
      entropy -= count > 0 ? share * std::log2(share) : 0;
    }
    return entropy + 1 + tessera::scalar_traits<T>::mantissa_bits;
  }

 private:
  device_memory& memory_;
  device_array<unsigned long long> counts_;
};

}  // namespace bench
