// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The first two kernels of the CUDA encoder (program/weights/encode.cuh): histograms, then windows and codebooks.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/weights/encode.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/crc32c.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/thread_index.cuh>

namespace tessera {
inline namespace v0 {

/// One tensor of a launch. The host computes all that follows from the spec.
template <class T>
struct encode_task {
  T const* weights;                 ///< the weights of the tensor
  std::uint8_t* stream;             ///< where the stream goes
  std::uint64_t* counts;            ///< 256 counts of exponents
  pair_coder::encode_table* table;  ///< the table for pushing
  std::int64_t* stream_bytes;       ///< the result: bytes of the stream
  std::uint64_t* tile_sums;         ///< workspace: one for each tile, zero at first
  std::int64_t capacity;            ///< bytes of room for the stream
  std::int64_t count;               ///< number of weights
  std::int64_t items_before;        ///< sampled blocks, or tiles, of the tasks before this one
  std::int64_t index_offset;        ///< weight_stream_spec::index_offset()
  std::int64_t planes_offset;       ///< weight_stream_spec::planes_offset()
  std::int64_t payload_offset;      ///< weight_stream_spec::payload_offset()
  std::int64_t normalizers_offset;  ///< weight_stream_spec::normalizers_offset()
  std::uint64_t seed;               ///< for stochastic rounding
  int log2_block;                   ///< weights of a block, as a power of two
  std::uint8_t is_rans;             ///< whether exponents are coded by rANS; else by codes of a fixed length
  std::uint8_t reports_full;        ///< whether a stream that does not fit is reported
  /// Weights of a normalizer, as a power of two; 0: there are none.
  std::uint8_t log2_normalizer_block;

  /// The task of an encoding, computed on the host.
  static encode_task of(weight_encoding<T> const& encoding, std::uint64_t* tile_sums, std::int64_t items_before) {
    weight_stream_spec const& spec = encoding.spec;
    return {encoding.weights,
            encoding.stream,
            encoding.counts,
            encoding.table,
            encoding.stream_bytes,
            tile_sums,
            encoding.capacity,
            spec.count,
            items_before,
            spec.index_offset(),
            spec.planes_offset(),
            spec.payload_offset(),
            spec.normalizers_offset(),
            encoding.seed,
            spec.log2_block,
            static_cast<std::uint8_t>(spec.coder == weight_coder::rans_pairs ? 1 : 0),
            static_cast<std::uint8_t>(encoding.reports_full ? 1 : 0),
            static_cast<std::uint8_t>(spec.log2_normalizer_block)};
  }

  /// The number of weights of a block.
  __device__ __forceinline__ int weights_in(std::int64_t block) const {
    return static_cast<int>(min(std::int64_t{1} << log2_block, count - (block << log2_block)));
  }
  /// A block of which so many weights are coded.
  __device__ __forceinline__ weight_block<T> block(std::int64_t which, int coded) const {
    weight_block<T> result;
    std::int64_t const first = which << log2_block;
    result.weights = weights + first;
    if (log2_normalizer_block > 0) {
      result.normalizers = stream + normalizers_offset + (first >> log2_normalizer_block);
      result.log2_normalizer_block = log2_normalizer_block;
    }
    result.count = weights_in(which);
    result.coded = coded;
    result.first = static_cast<std::uint64_t>(first);
    result.seed = seed;
    return result;
  }
  /// The number of blocks of the tensor.
  TESSERA_FN std::int64_t block_count() const { return (count + (std::int64_t{1} << log2_block) - 1) >> log2_block; }
};

/// Loads sixteen bytes of weights from any address; weights past `count` are zeros.
template <class T>
__device__ __forceinline__ void load_row(T const* weights, int position, int count, std::uint32_t (&words)[4]) {
  constexpr int in_row = 16 / static_cast<int>(sizeof(T));
  if (position + in_row <= count && reinterpret_cast<std::uintptr_t>(weights) % 16 == 0) {
    uint4 const values = load_once(reinterpret_cast<uint4 const*>(weights + position));
    words[0] = values.x;
    words[1] = values.y;
    words[2] = values.z;
    words[3] = values.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = 0;
  }
#pragma unroll
  for (int i = 0; i < in_row; ++i) {
    constexpr int bits = static_cast<int>(sizeof(T)) * 8;
    if (position + i < count) {
      words[i * bits / 32] |= std::uint32_t{to_bits(weights[position + i])} << (i * bits % 32);
    }
  }
}

/// Counts exponents. One thread block for each counted block of weights. Each lane has its own column of counters, so
/// that no two lanes conflict.
template <class T, class Mantissa = keep_mantissa<scalar_traits<T>::mantissa_bits>>
struct count_exponents_on_blocks {
  static constexpr int lanes = 256;
  static constexpr int blocks_per_multiprocessor = 4;
  static constexpr int most_tasks = 32;
  struct scratch_type {
    std::uint32_t counts[256][32];  ///< counts of each exponent, by lane
  };

  encode_task<T> task[most_tasks];  ///< the tensors of the launch
  int tasks;

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t which, scratch_type& scratch) const {
    int i = 0;
    while (i + 1 < tasks && which >= task[i + 1].items_before) {
      ++i;
    }
    encode_task<T> const& t = task[i];
    std::int64_t const block = (which - t.items_before) * histogram_stride(t.block_count());
    int const thread = static_cast<int>(thread_index());
    for (int k = thread; k < 256 * 32; k += lanes) {
      (&scratch.counts[0][0])[k] = 0;
    }
    group.sync();
    weight_block<T> const source = t.block(block, 0);
    T const* const weights = source.weights;
    int const count = source.count;
    constexpr int in_row = 16 / static_cast<int>(sizeof(T));
    for (int position = thread * in_row; position < count; position += lanes * in_row) {
      std::uint32_t words[4];
      load_row(weights, position, count, words);
#pragma unroll
      for (int k = 0; k < in_row; ++k) {
        constexpr int bits = static_cast<int>(sizeof(T)) * 8;
        if (position + k < count) {
          std::uint32_t exponent = exponent_split<T>::exponent(words[k * bits / 32] >> (k * bits % 32));
          if constexpr (!Mantissa::template is_lossless<T>) {
            exponent = source.template keep<Mantissa>(position + k).exponent;
          }
          atomicAdd(&scratch.counts[exponent][thread % 32], 1u);
        }
      }
    }
    group.sync();
    std::uint32_t sum = 0;
    for (int k = 0; k < 32; ++k) {
      sum += scratch.counts[thread][(k + thread) % 32];
    }
    if (sum > 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(t.counts + thread), static_cast<unsigned long long>(sum));
    }
  }
};

/// The codebook's checksum, for the lanes of the first warp, which write it.
template <int Lanes>
__device__ std::uint32_t codebook_checksum(cuda_block<Lanes> const& group, std::uint8_t const* codebook) {
  return group.lane < 32 ? warp_crc32c<16, 32>(group.lane, codebook) : 0;
}

/// Writes codebooks as write_codebook does. One thread block for each tensor. It takes most of its time to fetch
/// instructions, each of which is used once: 3480 of them take 12 us, 6976 of them (with offsets of sections computed
/// here, too) 31 us.
struct write_codebooks_on_blocks {
  static constexpr int lanes = 256;
  static constexpr int most_tasks = 32;
  using scratch_type = codebook_scratch;
  codebook_writing writing[most_tasks];  ///< the work for each tensor

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    write_codebook{writing[which]}(group, 0, scratch);
  }
};

}  // namespace v0
}  // namespace tessera
