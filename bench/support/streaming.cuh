// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Kernels that only move memory: they fill buffers, flush the L2 cache and measure the machine's ceilings.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/testing/generators.hpp>

#include "device.cuh"

namespace bench {

inline constexpr int streaming_threads = 256;
inline constexpr int vectors_per_thread = 4;  // 64 bytes in flight for each thread
inline constexpr std::size_t bytes_per_block = sizeof(uint4) * streaming_threads * vectors_per_thread;

/// The position of a thread's k-th vector: neighbours in a warp touch neighbouring vectors.
__device__ inline std::size_t vector_position(int k) {
  return (static_cast<std::size_t>(blockIdx.x) * vectors_per_thread + static_cast<std::size_t>(k)) * streaming_threads +
         threadIdx.x;
}

template <class T, class Generator>
__global__ void fill_kernel(Generator generator, std::uint64_t seed, T* data, std::size_t count) {
  std::size_t const step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    data[i] = tessera::testing::sample<T>(generator, seed, i);
  }
}

/// Fills device memory with the samples that testing::fill writes on the host.
template <class T, class Generator>
void fill(T* data, std::size_t count, Generator const& generator, std::uint64_t seed, cudaStream_t stream) {
  int const blocks = 8 * device_attribute(cudaDevAttrMultiProcessorCount);
  fill_kernel<<<blocks, streaming_threads, 0, stream>>>(generator, seed, data, count);
  check(cudaGetLastError(), "fill_kernel");
}
template <class T, class Generator>
void fill(device_array<T> const& array, Generator const& generator, std::uint64_t seed, cudaStream_t stream) {
  fill(array.data(), array.size(), generator, seed, stream);
}

template <class Unused = void>  // a template, so that two objects that include this header can be linked
__global__ void copy_kernel(uint4 const* __restrict__ from, uint4* __restrict__ to) {
  uint4 values[vectors_per_thread];
#pragma unroll
  for (int k = 0; k < vectors_per_thread; ++k) {
    values[k] = __ldcs(from + vector_position(k));
  }
#pragma unroll
  for (int k = 0; k < vectors_per_thread; ++k) {
    __stcs(to + vector_position(k), values[k]);
  }
}

/// Reads everything. One thread in 2^32 stores a value, which keeps the loads alive.
template <class Unused = void>
__global__ void read_kernel(uint4 const* __restrict__ from, std::uint32_t* sink) {
  std::uint32_t sum = 0;
#pragma unroll
  for (int k = 0; k < vectors_per_thread; ++k) {
    uint4 const value = from[vector_position(k)];
    sum ^= value.x ^ value.y ^ value.z ^ value.w;
  }
  if (sum == 0x9E3779B9U) {
    *sink = sum;
  }
}

/// Writes words that differ from one to the next, since equal ones might be written faster.
template <class Unused = void>
__global__ void write_kernel(uint4* to, std::uint32_t seed) {
#pragma unroll
  for (int k = 0; k < vectors_per_thread; ++k) {
    std::size_t const position = vector_position(k);
    std::uint32_t const word = (static_cast<std::uint32_t>(position) ^ seed) * 0x9E3779B9U;
    __stcs(to + position, make_uint4(word, word ^ 0x85EBCA6BU, word + 0xC2B2AE35U, ~word));
  }
}

/// The number of bytes, rounded down, that the three kernels above cover with whole blocks.
inline std::size_t whole_blocks(std::size_t bytes) {
  return bytes / bytes_per_block * bytes_per_block;
}

inline void stream_copy(void const* from, void* to, std::size_t bytes, cudaStream_t stream) {
  auto const blocks = static_cast<unsigned>(bytes / bytes_per_block);
  copy_kernel<><<<blocks, streaming_threads, 0, stream>>>(static_cast<uint4 const*>(from), static_cast<uint4*>(to));
  check(cudaGetLastError(), "copy_kernel");
}

inline void stream_read(void const* from, std::size_t bytes, std::uint32_t* sink, cudaStream_t stream) {
  auto const blocks = static_cast<unsigned>(bytes / bytes_per_block);
  read_kernel<><<<blocks, streaming_threads, 0, stream>>>(static_cast<uint4 const*>(from), sink);
  check(cudaGetLastError(), "read_kernel");
}

inline void stream_write(void* to, std::size_t bytes, std::uint32_t seed, cudaStream_t stream) {
  auto const blocks = static_cast<unsigned>(bytes / bytes_per_block);
  write_kernel<><<<blocks, streaming_threads, 0, stream>>>(static_cast<uint4*>(to), seed);
  check(cudaGetLastError(), "write_kernel");
}

}  // namespace bench
