// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What a thread block of the CUDA decoder (program/decode_weights.cuh) needs to know of one tensor.
#pragma once

#include <cstdint>

#include <tessera/core/precision.hpp>
#include <tessera/entropy/exponent_split.hpp>
#include <tessera/entropy/exponent_window.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/decode_weights.hpp>

namespace tessera {
inline namespace v0 {

/// What a block's index entry says.
struct block_parts {
  int words;
  int escapes;
  int escapes_begin;   ///< from the start of the payload
  std::int64_t begin;  ///< of the payload, from the start of the stream
  bool raw;
  bool fits;  ///< all of it lies in the stream
};

/// One tensor, or a range of its blocks, of a launch. All that follows from the spec is worked out on the host.
template <class T>
struct decode_task {
  std::uint8_t type;
  std::uint8_t coder;
  std::uint8_t log2_block;
  std::uint8_t mantissa_kept;
  std::uint32_t flags;
  std::uint8_t const* stream;
  std::int64_t stream_bytes;
  T* weights;          ///< of the first block decoded
  std::int64_t count;  ///< weights of the whole tensor
  std::int64_t first_block;
  std::int64_t blocks_before;  ///< of the tasks before this one
  std::int64_t index_offset;
  std::int64_t planes_offset;
  std::int64_t payload_offset;

  static decode_task of(weight_decoding<T> const& decoding, std::int64_t blocks_before) {
    weight_stream_spec const& spec = decoding.spec;
    const weight_stream_header expected = spec.header();
    return {expected.type,        expected.coder,       expected.log2_block,   expected.mantissa_kept,
            expected.flags,       decoding.stream,      decoding.stream_bytes, decoding.weights,
            spec.count,           decoding.first_block, blocks_before,         spec.index_offset(),
            spec.planes_offset(), spec.payload_offset()};
  }

  __device__ __forceinline__ weight_stream_header const& header() const {
    return *reinterpret_cast<weight_stream_header const*>(stream);
  }

  /// True if all of the header is as it must be; its checksum is checked apart.
  __device__ __forceinline__ bool header_fits() const {
    weight_stream_header const& found = header();
    const exponent_window window{found.window_base, found.window_extra};
    const bool zero = (found.zero[0] | found.zero[1] | found.zero[2]) == 0 &&
                      (found.more_zero[0] | found.more_zero[1] | found.more_zero[2] | found.more_zero[3]) == 0;
    return zero && found.magic == weight_stream_header::expected_magic &&
           found.version == weight_stream_header::expected_version && found.type == type && found.coder == coder &&
           found.log2_block == log2_block && found.mantissa_kept == mantissa_kept && found.log2_normalizer_block == 0 &&
           found.flags == flags && found.block_count == block_count() &&
           found.count == static_cast<std::uint64_t>(count) && window.fits(exponent_split<T>::largest_exponent) &&
           found.total_bytes >= static_cast<std::uint64_t>(payload_offset) &&
           found.total_bytes <= static_cast<std::uint64_t>(stream_bytes);
  }

  __device__ __forceinline__ bool is_rans() const {
    return coder == static_cast<std::uint8_t>(weight_coder::rans_pairs);
  }
  __device__ __forceinline__ std::uint32_t block_count() const {
    return static_cast<std::uint32_t>((count + (std::int64_t{1} << log2_block) - 1) >> log2_block);
  }
  __device__ __forceinline__ int weights_in(std::int64_t block) const {
    return static_cast<int>(min(std::int64_t{1} << log2_block, count - (block << log2_block)));
  }
  __device__ __forceinline__ bool is_whole(std::int64_t block) const { return weights_in(block) == 1 << log2_block; }
  __device__ __forceinline__ std::uint8_t const* planes_of(std::int64_t block) const {
    return stream + planes_offset + (block << log2_block) * exponent_split<T>::residual_bits / 8;
  }
  __device__ __forceinline__ T* weights_of(std::int64_t block) const {
    return weights + ((block - first_block) << log2_block);
  }
  __device__ __forceinline__ bool is_aligned() const { return reinterpret_cast<std::uintptr_t>(weights) % 16 == 0; }

  __device__ __forceinline__ block_parts parts_of(std::int64_t block, int coded) const {
    const uint2 packed = __ldg(reinterpret_cast<uint2 const*>(stream + index_offset) + block);
    block_parts parts;
    parts.words = static_cast<int>(packed.y & 0xffffu);
    parts.escapes = static_cast<int>(packed.y >> 16);
    parts.raw = parts.words == weight_block_index::raw;
    parts.escapes_begin = coded / 2;
    if (parts.raw) {
      parts.escapes_begin = coded * exponent_split<T>::exponent_bits / 8;
    } else if (is_rans()) {
      parts.escapes_begin = (weight_stream_spec::states_bytes + 2 * parts.words + 3) & ~3;
    }
    parts.begin = payload_offset + std::int64_t{packed.x} * weight_stream_spec::payload_alignment;
    const int bytes = (parts.escapes_begin + 4 * parts.escapes + 15) & ~15;
    parts.fits = (parts.raw ? parts.escapes == 0 : parts.words <= weight_stream_spec::largest_words) &&
                 parts.escapes <= weight_stream_spec::largest_escapes &&
                 parts.begin + bytes <= static_cast<std::int64_t>(header().total_bytes);
    return parts;
  }
};

}  // namespace v0
}  // namespace tessera
