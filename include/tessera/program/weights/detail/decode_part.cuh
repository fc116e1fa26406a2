// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Neighbouring blocks of one tensor, for a thread block of the CUDA decoder (program/weights/decode.cuh).
#pragma once

#include <cstdint>

#include <tessera/core/precision.hpp>
#include <tessera/entropy/exponent_split.hpp>
#include <tessera/entropy/exponent_window.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/weights/detail/normalize_rows.cuh>

namespace tessera {
inline namespace v0 {

/// The parts of a block, from its index entry.
struct block_parts {
  int words;           ///< words of 16 bits
  int escapes;         ///< escapes of the block
  int escapes_begin;   ///< first byte of the escapes, from the start of the payload
  std::int64_t begin;  ///< first byte of the payload, from the start of the stream
  bool raw;            ///< whether the payload is planes of exponents
  bool fits;           ///< whether the whole block is within the stream

  /// The parts of a block of `coded` weights. Offsets count from the start of the stream.
  template <class T, class Mantissa>
  __device__ __forceinline__ static block_parts of(uint2 packed, int coded, bool is_rans, std::int64_t payload_offset,
                                                   std::int64_t stream_end) {
    block_parts parts;
    parts.words = static_cast<int>(packed.y & 0xffffu);
    parts.escapes = static_cast<int>(packed.y >> 16);
    parts.raw = parts.words == weight_block_index::raw;
    parts.escapes_begin = coded / 2;
    if (parts.raw) {
      constexpr int bits = exponent_split<T>::exponent_bits + (Mantissa::kept_bits == 0 ? 1 : 0);
      parts.escapes_begin = coded * bits / 8;
    } else if (is_rans) {
      parts.escapes_begin = (weight_stream_spec::states_bytes + 2 * parts.words + 3) & ~3;
    }
    parts.begin = payload_offset + std::int64_t{packed.x} * weight_stream_spec::payload_alignment;
    int const bytes = (parts.escapes_begin + 4 * parts.escapes + 15) & ~15;
    parts.fits = (parts.raw ? parts.escapes == 0 : parts.words <= weight_stream_spec::largest_words) &&
                 parts.escapes <= weight_stream_spec::largest_escapes && parts.begin + bytes <= stream_end;
    return parts;
  }
};

/// The normalizers of a tensor; lossless ones have none.
template <bool IsLossless>
struct normalizers_of_part {
  std::uint8_t const* normalizers;  ///< normalizers from the first block on; null if there are none
  int log2_normalizer_block;        ///< weights of a normalizer, as a power of two
};
template <>
struct normalizers_of_part<true> {};

/// Blocks 0 to count - 1, counted from the first block of the part. It is in shared memory, because the loop over the
/// blocks has no registers to spare: what the compiler spilled for every block cost 15 percent.
template <class T, class Mantissa>
struct decode_part : normalizers_of_part<Mantissa::template is_lossless<T>> {
  /// Whether all bits of the mantissa are kept.
  static constexpr bool is_lossless = Mantissa::template is_lossless<T>;

  std::uint8_t const* stream;   ///< its first byte
  std::int64_t stream_end;      ///< the end of the stream, never past the bytes that may be read
  std::int64_t payload_offset;  ///< first byte of the payloads in the stream
  uint2 const* index;           ///< index entries from the first block on
  std::uint8_t const* planes;   ///< signs and mantissas from the first block on
  T* weights;                   ///< where weights go, from the first block on
  std::int64_t weights_left;    ///< weights from here to the end of the tensor
  std::int64_t first_block;     ///< the first block's number in the tensor, as on the host
  int count;                    ///< number of blocks
  int run;                      ///< neighbouring blocks that the thread block takes at a time
  int stride;                   ///< the distance from such a run to the next one
  int log2_block;               ///< weights of a block, as a power of two
  std::uint8_t window_base;     ///< exponent_window::base
  std::uint8_t window_extra;    ///< exponent_window::extra
  bool is_rans;                 ///< whether exponents are coded by rANS; else by codes of a fixed length

  /// The exponent window of the stream.
  __device__ __forceinline__ exponent_window window() const { return {window_base, window_extra}; }

  /// The position of the thread block's block number `taken`.
  __device__ __forceinline__ int position_of(int taken) const { return (taken / run) * stride + taken % run; }

  /// Whether whole blocks may take the fast path.
  __device__ __forceinline__ bool is_plain() const {
    return is_rans && reinterpret_cast<std::uintptr_t>(weights) % 16 == 0 &&
           (!has_normalizers() || has_small_products<T>(window()));
  }
  /// Whether weights were divided by normalizers.
  __device__ __forceinline__ bool has_normalizers() const {
    if constexpr (is_lossless) {
      return false;
    } else {
      return this->normalizers != nullptr;
    }
  }
  /// The normalizers of a block.
  __device__ __forceinline__ auto normalizers_of(int block) const {
    if constexpr (is_lossless) {
      return no_normalizers{};
    } else {
      std::int64_t const before = (static_cast<std::int64_t>(block) << log2_block) >> this->log2_normalizer_block;
      return block_normalizers{has_normalizers() ? this->normalizers + before : nullptr, this->log2_normalizer_block};
    }
  }

  /// The number of weights of every block but the last.
  __device__ __forceinline__ int block_weights() const { return 1 << log2_block; }
  /// The number of weights of a block.
  __device__ __forceinline__ int weights_in(int block) const {
    return static_cast<int>(
        min(std::int64_t{block_weights()}, weights_left - (static_cast<std::int64_t>(block) << log2_block)));
  }
  /// Whether a block has all its weights.
  __device__ __forceinline__ bool is_whole(int block) const { return weights_in(block) == block_weights(); }
  /// The thread block's block that is not whole; -1 if there is none.
  __device__ __forceinline__ int broken_block() const {
    std::int64_t const last = (weights_left - 1) >> log2_block;
    return last < count && last % stride < run && !is_whole(static_cast<int>(last)) ? static_cast<int>(last) : -1;
  }
  /// The signs and mantissas of a block.
  __device__ __forceinline__ std::uint8_t const* planes_of(int block) const {
    return planes + (static_cast<std::int64_t>(block) << log2_block) * (1 + Mantissa::kept_bits) / 8;
  }
  /// Where a block's weights go.
  __device__ __forceinline__ T* weights_of(int block) const {
    return weights + (static_cast<std::int64_t>(block) << log2_block);
  }
  /// The index entry of a block, a packed weight_block_index.
  __device__ __forceinline__ uint2 index_entry(int block) const { return __ldg(index + block); }

  /// The parts of a block of `coded` weights, from its index entry.
  __device__ __forceinline__ block_parts parts_of(uint2 packed, int coded) const {
    return block_parts::of<T, Mantissa>(packed, coded, is_rans, payload_offset, stream_end);
  }
};

}  // namespace v0
}  // namespace tessera
