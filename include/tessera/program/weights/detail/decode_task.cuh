// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// One tensor, for a thread block of the CUDA decoder (program/weights/decode.cuh).
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/entropy/exponent_split.hpp>
#include <tessera/entropy/exponent_window.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/weights/decode.hpp>
#include <tessera/program/weights/detail/decode_part.cuh>
#include <tessera/quantize/keep_mantissa.hpp>

namespace tessera {
inline namespace v0 {

/// Where the normalizers of a tensor of a launch are; lossless ones have none.
template <bool IsLossless>
struct normalizers_of_task {
  std::int64_t normalizers_offset = 0;      ///< weight_stream_spec::normalizers_offset()
  std::uint32_t log2_normalizer_block = 0;  ///< weights of a normalizer, as a power of two; 0: there are none
};
template <>
struct normalizers_of_task<true> {};

/// One tensor of a launch, or a range of its blocks. The host computes all that follows from the spec.
template <class T, class Mantissa = keep_mantissa<scalar_traits<T>::mantissa_bits>>
struct decode_task : normalizers_of_task<Mantissa::template is_lossless<T>> {
  /// Whether all bits of the mantissa are kept.
  static constexpr bool is_lossless = Mantissa::template is_lossless<T>;
  /// How a warp decodes its blocks.
  using part_type = decode_part<T, Mantissa>;

  std::uint8_t type;            ///< weight_type
  std::uint8_t coder;           ///< weight_coder
  std::uint8_t log2_block;      ///< weights of a block, as a power of two
  std::uint8_t mantissa_kept;   ///< mantissa bits that are kept
  std::uint32_t flags;          ///< flags of the header
  std::uint32_t is_inspected;   ///< 1: the header's checksum must be `checksum`
  std::uint32_t checksum;       ///< the header's checksum when the stream was inspected
  std::uint32_t* is_sound;      ///< becomes 1 or 0 for verify_blocks; null: not needed
  std::uint8_t const* stream;   ///< its first byte
  std::int64_t stream_bytes;    ///< bytes of the stream that may be read
  T* weights;                   ///< where the weights go, from those of the first block decoded on
  std::int64_t count;           ///< number of weights of the whole tensor
  std::int64_t first_block;     ///< the first block to decode
  std::int64_t blocks_before;   ///< blocks of the tasks before this one
  std::int64_t index_offset;    ///< weight_stream_spec::index_offset()
  std::int64_t planes_offset;   ///< weight_stream_spec::planes_offset()
  std::int64_t payload_offset;  ///< weight_stream_spec::payload_offset()

  /// The task of a decoding, computed on the host.
  static decode_task of(weight_decoding<T> const& decoding, std::int64_t blocks_before) {
    weight_stream_spec const& spec = decoding.spec;
    weight_stream_header const expected = spec.header();
    std::uint32_t* const is_sound = decoding.table == nullptr ? nullptr : &decoding.table->is_sound;
    normalizers_of_task<is_lossless> normalizers;
    if constexpr (!is_lossless) {
      normalizers = {spec.normalizers_offset(), expected.log2_normalizer_block};
    }
    return {normalizers,
            expected.type,
            expected.coder,
            expected.log2_block,
            expected.mantissa_kept,
            expected.flags,
            decoding.is_inspected ? 1u : 0u,
            decoding.header_checksum,
            is_sound,
            decoding.stream,
            decoding.stream_bytes,
            decoding.weights,
            spec.count,
            decoding.first_block,
            blocks_before,
            spec.index_offset(),
            spec.planes_offset(),
            spec.payload_offset()};
  }

  /// The header as it is in the stream.
  __device__ __forceinline__ weight_stream_header const& header() const {
    return *reinterpret_cast<weight_stream_header const*>(stream);
  }
  /// The end of the stream as its header says, but never past the bytes that may be read.
  __device__ __forceinline__ std::int64_t stream_end() const {
    return static_cast<std::int64_t>(min(header().total_bytes, static_cast<std::uint64_t>(stream_bytes)));
  }

  /// Whether all of the header is as it must be, except for its checksum, which another warp verifies.
  __device__ __forceinline__ bool header_fits() const {
    struct alignas(16) vectors {
      uint4 part[sizeof(weight_stream_header) / sizeof(uint4)];
    };
    auto const found = bit_cast<weight_stream_header>(*reinterpret_cast<vectors const*>(stream));
    exponent_window const window{found.window_base, found.window_extra};
    bool const zero = (found.zero[0] | found.zero[1] | found.zero[2]) == 0 &&
                      (found.codebook_units | found.more_zero[0] | found.more_zero[1] | found.more_zero[2]) == 0;
    return zero && found.magic == weight_stream_header::expected_magic &&
           found.version == weight_stream_header::expected_version && found.type == type && found.coder == coder &&
           found.log2_block == log2_block && found.mantissa_kept == mantissa_kept &&
           found.log2_normalizer_block == log2_normalizers() && found.flags == flags &&
           (is_inspected == 0 || found.header_checksum == checksum) && found.block_count == block_count() &&
           found.count == static_cast<std::uint64_t>(count) && window.fits(exponent_split<T>::largest_exponent) &&
           found.total_bytes >= static_cast<std::uint64_t>(payload_offset) &&
           found.total_bytes <= static_cast<std::uint64_t>(stream_bytes);
  }

  /// Whether exponents are coded by rANS; else by codes of a fixed length.
  __device__ __forceinline__ bool is_rans() const {
    return coder == static_cast<std::uint8_t>(weight_coder::rans_pairs);
  }
  /// Weights of a normalizer, as a power of two; 0: there are none.
  __device__ __forceinline__ std::uint32_t log2_normalizers() const {
    if constexpr (is_lossless) {
      return 0;
    } else {
      return this->log2_normalizer_block;
    }
  }
  /// The number of blocks, as the header says.
  __device__ __forceinline__ std::uint32_t block_count() const {
    return static_cast<std::uint32_t>((count + (std::int64_t{1} << log2_block) - 1) >> log2_block);
  }
  /// The number of weights of a block.
  __device__ __forceinline__ int weights_in(std::int64_t block) const {
    return static_cast<int>(min(std::int64_t{1} << log2_block, count - (block << log2_block)));
  }
  /// The signs and mantissas of a block.
  __device__ __forceinline__ std::uint8_t const* planes_of(std::int64_t block) const {
    return stream + planes_offset + (block << log2_block) * (1 + Mantissa::kept_bits) / 8;
  }
  /// This lane's sixteen bytes of the codebook. Only for the rANS coder.
  __device__ __forceinline__ uint4 codebook(int lane) const {
    return reinterpret_cast<uint4 const*>(stream + sizeof(weight_stream_header))[lane];
  }
  /// The index entries of the blocks.
  __device__ __forceinline__ uint2 const* index() const {
    return reinterpret_cast<uint2 const*>(stream + index_offset);
  }
  /// Whether the weights begin at a multiple of 16 bytes.
  __device__ __forceinline__ bool is_aligned() const { return reinterpret_cast<std::uintptr_t>(weights) % 16 == 0; }

  /// The part of the tensor from block `first` on. A corrupt header does no harm.
  __device__ __forceinline__ part_type part(std::int64_t first) const {
    part_type result;
    if constexpr (!is_lossless) {
      bool const is_normalized = this->log2_normalizer_block != 0;
      std::int64_t const before = (first << log2_block) >> this->log2_normalizer_block;
      result.normalizers = is_normalized ? stream + this->normalizers_offset + before : nullptr;
      result.log2_normalizer_block = static_cast<int>(this->log2_normalizer_block);
    }
    result.stream = stream;
    result.stream_end = stream_end();
    result.payload_offset = payload_offset;
    result.index = index() + first;
    result.planes = planes_of(first);
    result.weights = weights + ((first - first_block) << log2_block);
    result.weights_left = count - (first << log2_block);
    result.first_block = first;
    result.log2_block = log2_block;
    result.window_base = header().window_base;
    result.window_extra = header().window_extra;
    result.is_rans = is_rans();
    return result;
  }
};

}  // namespace v0
}  // namespace tessera
