// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The format of compressed weights: one self-describing stream of bytes for one tensor, version 1.
///
/// All integers are little-endian. Sections follow each other in this order, each from a multiple of 64 bytes:
///
///     header        64 bytes, weight_stream_header
///     codebook      rANS: 512 bytes, 256 16-bit frequencies of pairs that sum to 4096; fixed: nothing
///                   other coders: codebook_units times 64 bytes; tANS: 512, frequencies of exponents
///     index         8 bytes a block, weight_block_index
///     checksums     4 bytes a block, CRC32C (if the flag is set)
///     normalizers   1 byte for each block of 2^log2_normalizer_block weights (if that is not 0)
///     planes        sign and mantissa bits, (1 + mantissa_kept) / 8 bytes a weight, see bit_planes.hpp
///     payload       coded exponents, in the order of blocks, each block from a multiple of 16 bytes
///
/// Sizes of all sections but the payload follow from the header, so only the payload needs an index. A *block* is
/// 2^log2_block weights (the last may be shorter) and can be decoded alone. A block's payload is one of
///
///     rANS:   32 32-bit lane states; 16-bit words in the order in which the lanes want them; zero to 4 bytes; escapes
///     fixed:  one 4-bit plane of exponent codes; escapes
///     others: as rANS, but each symbol is a whole exponent, and the stream's coder pushes it
///     raw:    planes of the exponents themselves (where the others would be larger), with one bit more above them
///             where no mantissa bit is kept: 1 for a NaN
///
/// with zeros to a multiple of 16 bytes. An escape is a 32-bit entry: position in the block (16 bits), exponent (8
/// bits), 1 if the value is a NaN whose mantissa bits were all dropped (8 bits). Positions ascend, and none occurs
/// twice. A block is coded with its number of weights rounded up to the format's granularity. The added weights are not
/// escapes and are coded like the window's first exponent, with zero planes. Coders of whole exponents have no window:
/// window_base is the exponent that is coded in the place of escapes and for added weights, window_extra is 0.
///
/// Coders have numbers (`weight_coder`). Those below 128 are the library's. From 128 on they are for the coders of
/// users (concepts/stream_coder.hpp), whose streams only the users' own programs can decode. inspect_weight_stream
/// reads the headers of either.
///
/// Any decoder, on any executor, gives the same result for any bytes. If the header is not the one expected, or a
/// checksum of the header or the codebook is wrong, the status is bad_header at position 0, and all weights are zeros.
/// If a block's entry or payload contradicts itself (parts beyond the stream; states that do not fit; words too many or
/// too few; exponents that the type does not have; escapes beyond the block, or out of order), the status is
/// corrupt_stream with the block's number, and its weights are zeros. If only its checksum is wrong, the status is
/// bad_checksum with its number, or at position 0 for a tensor that is stored uncoded.
///
/// A block's checksum covers the last 4 bytes of its index entry, its normalizers, its planes and its payload. The
/// header's covers its first 60 bytes. A tensor too small to gain has coder `stored`: the bytes of the values follow
/// the header, and content_checksum is their CRC32C.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/crc32c.hpp>
#include <tessera/entropy/bit_planes.hpp>
#include <tessera/entropy/exponent_window.hpp>

namespace tessera {
inline namespace v0 {

/// Element types of a stream; the numbers are part of the format.
enum class weight_type : std::uint8_t { bf16 = 0, fp16 = 1, fp32 = 2, fp8_e4m3 = 3, fp8_e5m2 = 4 };
inline constexpr int weight_types = 5;  ///< the number of values of weight_type

/// How exponents are coded; the numbers are part of the format. Numbers from first_user_coder on are for users.
enum class weight_coder : std::uint8_t { stored = 0, rans_pairs = 1, fixed_codes = 2, tans_exponents = 3 };
inline constexpr int weight_coders = 4;       ///< the number of coders that the library has
inline constexpr int first_user_coder = 128;  ///< the lowest number of a user's coder; the highest is 255

/// Constants of an element type.
struct weight_type_traits {
  int bytes;          ///< bytes of a value
  int exponent_bits;  ///< exponent bits of a value
  int mantissa_bits;  ///< mantissa bits of a value, without the implicit one

  /// The constants of `type`.
  TESSERA_FN static constexpr weight_type_traits of(weight_type type) {
    switch (type) {
      case weight_type::fp16:
        return {2, 5, 10};
      case weight_type::fp32:
        return {4, 8, 23};
      case weight_type::fp8_e4m3:
        return {1, 4, 3};
      case weight_type::fp8_e5m2:
        return {1, 5, 2};
      default:
        return {2, 8, 7};
    }
  }

  /// Values that a lane handles at a time, which take 16 bytes.
  TESSERA_FN constexpr int weights_per_lane() const { return 16 / bytes; }
};

/// The first 64 bytes of a stream.
struct weight_stream_header {
  /// "TSRA" in memory.
  static constexpr std::uint32_t expected_magic = 0x41525354;  // "TSRA"
  static constexpr std::uint16_t expected_version = 1;         ///< the version of this format; decoders refuse others
  static constexpr std::uint32_t flag_block_checksums = 1;     ///< in `flags`: every block has a CRC32C
  static constexpr std::uint32_t known_flags = flag_block_checksums;  ///< decoders refuse others

  std::uint32_t magic;                 ///< expected_magic
  std::uint16_t version;               ///< expected_version
  std::uint8_t type;                   ///< weight_type
  std::uint8_t coder;                  ///< weight_coder
  std::uint8_t log2_block;             ///< weights of a block, as a power of two: 10 to 13
  std::uint8_t mantissa_kept;          ///< bits of each weight's mantissa
  std::uint8_t log2_normalizer_block;  ///< 0: no normalizers
  std::uint8_t window_base;            ///< exponent_window::base
  std::uint8_t window_extra;           ///< exponent_window::extra
  std::uint8_t zero[3];                ///< unused bytes, always 0
  std::uint32_t flags;                 ///< flag_block_checksums or 0
  std::uint32_t block_count;           ///< blocks, as weight_stream_spec::block_count() gives them
  std::uint64_t count;                 ///< weights of the tensor
  std::uint64_t total_bytes;           ///< bytes of the stream
  std::uint32_t content_checksum;      ///< CRC32C of the codebook; with coder `stored`, of the values
  std::uint32_t codebook_units;        ///< weight_stream_spec::codebook_units
  std::uint32_t more_zero[3];          ///< unused bytes, always 0
  std::uint32_t header_checksum;       ///< CRC32C of the 60 bytes before it
};
static_assert(sizeof(weight_stream_header) == 64);

/// The index entry of a block, which says where its payload is.
struct weight_block_index {
  static constexpr std::uint16_t raw = 0xffff;  ///< in `words`: exponents of this block lie as planes

  std::uint32_t position;  ///< from the start of the payload section, in units of 16 bytes
  std::uint16_t words;     ///< 16-bit words of the coder, 0 of the fixed coder, or `raw`
  std::uint16_t escapes;   ///< escapes of the block
};
static_assert(sizeof(weight_block_index) == 8);

/// The choices that decide a stream's layout, apart from the data.
struct weight_stream_spec {
  static constexpr int smallest_log2_block = 10;  ///< log2 of the fewest weights of a block
  static constexpr int largest_log2_block = 13;   ///< log2 of the most weights of a block
  /// More words or escapes than this make a block raw; decoders need that much room and no more.
  static constexpr int largest_words = 2048;
  static constexpr int largest_exponent_words = 4096;  ///< the same, for coders of whole exponents
  static constexpr int largest_escapes = 512;          ///< the most escapes of a block that is not raw
  static constexpr int states_bytes = 32 * 4;          ///< bytes of the states of the coder's 32 lanes
  /// The most units of 64 bytes that a codebook takes.
  static constexpr std::uint32_t largest_codebook_units = 255;
  static constexpr int payload_alignment = 16;  ///< alignment of a block's payload, in bytes
  static constexpr int section_alignment = 64;  ///< alignment of each section of a stream, in bytes
  static constexpr int codebook_bytes = 512;    ///< bytes of the rANS coder's frequencies: 256 numbers of 16 bits

  weight_type type = weight_type::bf16;           ///< element type of the weights
  weight_coder coder = weight_coder::rans_pairs;  ///< how exponents are coded
  /// Units of 64 bytes of the codebook, with coders of whole exponents; 0 with all others, whose codebooks are known.
  std::uint8_t codebook_units = 0;
  int log2_block = largest_log2_block;  ///< weights of a block, as a power of two
  int mantissa_kept = 7;                ///< bits of each weight's mantissa; all of them: lossless
  int log2_normalizer_block = 0;        ///< weights of a normalizer, as a power of two; 0: none
  bool block_checksums = false;         ///< whether every block has a CRC32C
  std::int64_t count = 0;               ///< weights of the tensor

  /// The constants of the element type.
  TESSERA_FN constexpr weight_type_traits traits() const { return weight_type_traits::of(type); }
  /// Weights of every block but the last.
  TESSERA_FN constexpr std::int64_t block_weights() const { return std::int64_t{1} << log2_block; }
  /// Blocks of the stream; none with coder `stored`.
  TESSERA_FN constexpr std::int64_t block_count() const {
    return coder == weight_coder::stored ? 0 : divide_up(count, block_weights());
  }
  /// The planes of signs and kept mantissa bits.
  TESSERA_FN constexpr bit_planes residual_planes() const { return {1 + mantissa_kept, traits().weights_per_lane()}; }
  /// The planes of codes of 4 bits, with the fixed coder.
  TESSERA_FN constexpr bit_planes code_planes() const { return {4, traits().weights_per_lane()}; }
  /// The planes of raw payloads. Where no mantissa bit is kept, an extra bit tells a NaN from an infinity.
  TESSERA_FN constexpr bit_planes exponent_planes() const {
    return {traits().exponent_bits + (mantissa_kept == 0 ? 1 : 0), traits().weights_per_lane()};
  }
  /// Coded blocks hold a multiple of this many weights.
  TESSERA_FN constexpr int granularity() const {
    return max(max(residual_planes().granularity(), code_planes().granularity()), exponent_planes().granularity());
  }

  /// Weights of a block as they are in the tensor.
  TESSERA_FN constexpr std::int64_t weights_in(std::int64_t block) const {
    return min(block_weights(), count - block * block_weights());
  }
  /// Weights of a block as they are coded, rounded up to whole units.
  TESSERA_FN constexpr std::int64_t coded_in(std::int64_t block) const {
    return align_up(weights_in(block), std::int64_t{granularity()});
  }
  /// Bytes of a raw payload of `coded` weights.
  TESSERA_FN constexpr std::int64_t raw_payload_bytes(std::int64_t coded) const {
    return align_up(exponent_planes().bytes(coded), std::int64_t{payload_alignment});
  }

  /// The byte of the payload at which escapes begin, for a block of `coded` weights.
  TESSERA_FN constexpr std::int64_t escapes_offset(std::int64_t coded, int words) const {
    return coder == weight_coder::fixed_codes ? coded / 2
                                              : align_up(std::int64_t{states_bytes} + 2 * words, std::int64_t{4});
  }
  /// Bytes of the payload of a block of `coded` weights.
  TESSERA_FN constexpr std::int64_t payload_bytes(std::int64_t coded, weight_block_index const& entry) const {
    if (entry.words == weight_block_index::raw) {
      return raw_payload_bytes(coded);
    }
    return align_up(escapes_offset(coded, entry.words) + 4 * entry.escapes, std::int64_t{payload_alignment});
  }

  /// Byte of the stream at which the payload of a block with this entry begins.
  TESSERA_FN constexpr std::int64_t payload_begin(weight_block_index const& entry) const {
    return payload_offset() + std::int64_t{entry.position} * payload_alignment;
  }

  // The sections of a stream.
  /// Byte of the stream at which the codebook begins.
  TESSERA_FN constexpr std::int64_t codebook_offset() const { return section_alignment; }
  /// Bytes of the codebook.
  TESSERA_FN constexpr std::int64_t codebook_size() const {
    return coder == weight_coder::rans_pairs ? codebook_bytes : std::int64_t{section_alignment} * codebook_units;
  }
  /// Byte at which the index of blocks begins.
  TESSERA_FN constexpr std::int64_t index_offset() const { return codebook_offset() + codebook_size(); }
  /// Byte after the index of blocks.
  TESSERA_FN constexpr std::int64_t index_end() const { return index_offset() + 8 * block_count(); }
  /// Byte at which the blocks' checksums begin.
  TESSERA_FN constexpr std::int64_t checksums_offset() const { return section_end(index_end()); }
  /// Byte after the blocks' checksums.
  TESSERA_FN constexpr std::int64_t checksums_end() const {
    return checksums_offset() + (block_checksums ? 4 * block_count() : 0);
  }
  /// Byte at which the normalizers begin, one byte each.
  TESSERA_FN constexpr std::int64_t normalizers_offset() const { return section_end(checksums_end()); }
  /// The number of normalizers of the blocks before this one.
  TESSERA_FN constexpr std::int64_t normalizers_before(std::int64_t block) const {
    return log2_normalizer_block == 0 ? 0 : (block * block_weights()) >> log2_normalizer_block;
  }
  /// The number of normalizers of this block.
  TESSERA_FN constexpr std::int64_t normalizers_in(std::int64_t block) const {
    return log2_normalizer_block == 0 ? 0 : divide_up(weights_in(block), std::int64_t{1} << log2_normalizer_block);
  }
  /// Byte after the normalizers.
  TESSERA_FN constexpr std::int64_t normalizers_end() const {
    std::int64_t const last = block_count() - 1;
    return normalizers_offset() + (last < 0 ? 0 : normalizers_before(last) + normalizers_in(last));
  }
  /// Byte at which the planes of signs and mantissas begin.
  TESSERA_FN constexpr std::int64_t planes_offset() const { return section_end(normalizers_end()); }
  /// Bytes of the planes of the blocks before this one.
  TESSERA_FN constexpr std::int64_t planes_before(std::int64_t block) const {
    return residual_planes().bytes(block * block_weights());
  }
  /// Byte after the planes.
  TESSERA_FN constexpr std::int64_t planes_end() const {
    std::int64_t const last = block_count() - 1;
    return planes_offset() + (last < 0 ? 0 : planes_before(last) + residual_planes().bytes(coded_in(last)));
  }
  /// Byte at which the payloads begin.
  TESSERA_FN constexpr std::int64_t payload_offset() const { return section_end(planes_end()); }
  /// Bytes of the shortest possible stream of this spec.
  TESSERA_FN constexpr std::int64_t smallest_bytes() const {
    return coder == weight_coder::stored ? section_alignment + count * traits().bytes : payload_offset();
  }
  /// Bytes of the longest possible stream of this spec.
  TESSERA_FN constexpr std::int64_t largest_bytes() const {
    if (coder == weight_coder::stored) {
      return section_alignment + count * traits().bytes;
    }
    return payload_offset() + block_count() * raw_payload_bytes(block_weights());
  }

  /// The header of a stream of this spec, without window and checksums, which depend on the data.
  TESSERA_FN constexpr weight_stream_header header() const {
    weight_stream_header result{};
    result.magic = weight_stream_header::expected_magic;
    result.version = weight_stream_header::expected_version;
    result.type = static_cast<std::uint8_t>(type);
    result.coder = static_cast<std::uint8_t>(coder);
    result.log2_block = static_cast<std::uint8_t>(log2_block);
    result.mantissa_kept = static_cast<std::uint8_t>(mantissa_kept);
    result.log2_normalizer_block = static_cast<std::uint8_t>(log2_normalizer_block);
    result.codebook_units = codebook_units;
    result.flags = block_checksums ? weight_stream_header::flag_block_checksums : 0;
    result.block_count = static_cast<std::uint32_t>(block_count());
    result.count = static_cast<std::uint64_t>(count);
    return result;
  }

 private:
  TESSERA_FN static constexpr std::int64_t section_end(std::int64_t bytes) {
    return align_up(bytes, std::int64_t{section_alignment});
  }
};

}  // namespace v0
}  // namespace tessera
