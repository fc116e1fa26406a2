// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The page of a compressed key-value cache: 64 tokens of a key head, of one layer or of two neighbouring layers that
/// share directions (MiniCache, arXiv 2405.14366), as a direction_codec makes it. This header is the contract between
/// the portable programs, programs for one architecture, and files: bytes are the same wherever they are made.
///
/// Parts of a page, from its start, without gaps, each a multiple of 32 bytes; D channels, G groups of a value:
///
///     of the first layer   key norms       fp16 x 64              slots of tokens: token_slot
///                          value scales    G x fp16 x 64          slots of tokens: token_slot
///     header               32 bytes        cache_page_header
///     of both layers       key scales      fp16 x D               slots of channels: channel_slot
///                          key minima      fp16 x D               slots of channels: channel_slot
///                          key codes       8 * D * key_bits bytes
///                          value codes     8 * D * value_bits bytes
///                          value ratios    G x fp16 x 64          token_slot
///     of the second layer  key norms, value scales: as of the first; not there in pages of one layer
///
/// So the bytes that a layer reads are contiguous, read_bytes() of them: from byte 0 for the first layer, from the
/// header for the second. With D = 128, 4 bits and G = 2 these are 9376 bytes of 9760, or 146.5 for each token, where
/// bf16 has 512; 142.5 with G = 1.
///
///     key    of layer l, token j, channel d:              norm[l][j] * (code * scale[d] + minimum[d])
///     value  of layer l, token j, channel d in group g:   scale[l][g][j] / 2^(value_bits - 1) * (code + ratio[g][j])
///
/// so that attention multiplies queries by key scales and weights by value scales, and then whole numbers.
///
/// Codes are in the order of a tensor core's first operand (mma.sync.m16n8k16, 16-bit operands), as fields of 32-bit
/// words, which mask and shift turn into pairs of 16-bit numbers. A strip is 16 channels x 64 tokens: four tiles of 16
/// x 16. In tiles of keys, rows are tokens and columns are channels; in tiles of values, rows are channels and columns
/// are tokens. The lane of a warp with g = lane / 4 and t = lane % 4 holds, in registers a = 0 to 3, the pair of
///
///     row g + 8 * (a % 2),   columns 2 t + 8 * (a / 2) and the next one: lower and upper half
///
/// Field f = 4 * tile + a of its strip has the same bits in both halves of a word:
///
///     bits   words   field f                                                 slot of word w of a lane of strip s
///     2      2       word f / 8, bit 2 * (f % 8)                             (s * 32 + lane) * 2 + w
///     3      3       word f / 5, bit 3 * (f % 5); of field 15 bit i: word i, (s * 32 + lane) * 3 + w
///                    bit 15
///     4      4       word f / 4, bit 4 * (f % 4)                             (s * 32 + lane) * 4 + w
///     8      8       word f / 2, bit 8 * (f % 2)                             s * 256 + w / 4 * 128 + lane * 4 + w % 4
///
/// With 4 bits, 16 bytes of a lane are its operands of 16 channels x 64 tokens. Read as fp16, word & 0x000f000f is
/// codes times 2^-24 (subnormal numbers, which tensor cores take), and word & 0x00f000f0 is codes times 2^-20, for
/// registers 1 and 3, which are rows g + 8. A shift by 8 gives both for columns + 8. Nothing is subtracted: the power
/// of two is a factor of the row.
///
/// Codes of retained tokens are 0, and so are their norms and scales; bit j of the header's mask is token j.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {

/// The header of a page, 32 bytes: which of its tokens are retained, and where.
struct cache_page_header {
  std::uint64_t retained;  ///< bit j: whether token j is retained, uncompressed, for both layers
  /// The first row of its retained tokens, which follow each other, among those of the slot and head.
  std::uint32_t first_row;
  std::uint32_t rows;     ///< retained tokens of the page
  float key_threshold;    ///< the angle from which on keys were retained
  float value_threshold;  ///< the angle from which on values were retained
  std::uint32_t zero[2];  ///< always 0

  /// Whether a token is retained.
  [[nodiscard]] TESSERA_FN constexpr bool is_retained(int token) const { return (retained >> token & 1U) != 0; }
  /// The row of a retained token, among those of its slot and head.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t row_of(int token) const {
    return std::int64_t{first_row} + popcount(retained & ((std::uint64_t{1} << token) - 1));
  }
};
static_assert(sizeof(cache_page_header) == 32);

/// Extents of a page, and where its parts begin, in bytes.
struct cache_page_format {
  static constexpr int tokens = 64;     ///< tokens of a page
  static constexpr int alignment = 32;  ///< bytes of which all parts have a multiple

  int channels = 128;    ///< channels of a head, a multiple of 32 up to 256
  int key_bits = 4;      ///< bits of a key's code: 2, 3, 4 or 8
  int value_bits = 4;    ///< bits of a value's code: 2, 3, 4 or 8
  int value_groups = 2;  ///< groups of neighbouring channels of a value, each with its own scale and ratio
  int layers = 2;        ///< layers of the page: 1 or 2

  friend constexpr bool operator==(cache_page_format const&, cache_page_format const&) = default;

  /// The channels of a group, which share a scale and a ratio.
  [[nodiscard]] TESSERA_FN constexpr int group_channels() const { return channels / value_groups; }
  /// The strips of 16 channels.
  [[nodiscard]] TESSERA_FN constexpr int strips() const { return channels / 16; }
  /// The bytes of the codes of keys.
  [[nodiscard]] TESSERA_FN constexpr int key_code_bytes() const { return tokens / 8 * channels * key_bits; }
  /// The bytes of the codes of values.
  [[nodiscard]] TESSERA_FN constexpr int value_code_bytes() const { return tokens / 8 * channels * value_bits; }

  /// The bytes that each layer has for itself.
  [[nodiscard]] TESSERA_FN constexpr int layer_bytes() const { return 2 * tokens * (1 + value_groups); }
  /// The byte at which the header begins.
  [[nodiscard]] TESSERA_FN constexpr int header() const { return layer_bytes(); }
  /// The byte at which the keys' scales begin.
  [[nodiscard]] TESSERA_FN constexpr int key_scales() const { return header() + 32; }
  /// The byte at which the keys' minima begin.
  [[nodiscard]] TESSERA_FN constexpr int key_minima() const { return key_scales() + 2 * channels; }
  /// The byte at which the codes of keys begin.
  [[nodiscard]] TESSERA_FN constexpr int key_codes() const { return key_minima() + 2 * channels; }
  /// The byte at which the codes of values begin.
  [[nodiscard]] TESSERA_FN constexpr int value_codes() const { return key_codes() + key_code_bytes(); }
  /// The byte at which the values' ratios begin.
  [[nodiscard]] TESSERA_FN constexpr int value_ratios() const { return value_codes() + value_code_bytes(); }
  /// The end of the parts that both layers share, and the number of bytes that a layer reads.
  [[nodiscard]] TESSERA_FN constexpr int read_bytes() const { return value_ratios() + 2 * tokens * value_groups; }
  /// The first byte that a layer reads.
  [[nodiscard]] TESSERA_FN constexpr int read_offset(int layer) const { return layer == 0 ? 0 : header(); }
  /// The byte at which the key norms of a layer begin.
  [[nodiscard]] TESSERA_FN constexpr int key_norms(int layer) const { return layer == 0 ? 0 : read_bytes(); }
  /// The byte at which the value scales of a layer begin.
  [[nodiscard]] TESSERA_FN constexpr int value_scales(int layer) const { return key_norms(layer) + 2 * tokens; }
  /// The bytes of a page.
  [[nodiscard]] TESSERA_FN constexpr int bytes() const { return read_bytes() + (layers - 1) * layer_bytes(); }
};

/// Why a PageCodec cannot make pages of a format: the parts of a sentence, between which its two numbers stand.
struct page_format_fault {
  char const* begin = nullptr;  ///< null: there is no fault
  int found = 0;                ///< what the format has
  /// The text behind the number.
  char const* middle = "";
  int limit = 0;  ///< what it must have, or a bound of that
  /// The text at the end.
  char const* end = "";
  bool is_of_shape = true;  ///< whether it is an extent that is impossible, and not a number of bits

  /// Whether there is no fault.
  [[nodiscard]] TESSERA_FN constexpr bool is_none() const { return begin == nullptr; }
};

/// The bytes of a page, by use.
struct page_byte_counts {
  std::int64_t codes = 0;    ///< codes of keys and values
  std::int64_t scales = 0;   ///< parameters of codes
  std::int64_t lengths = 0;  ///< lengths of vectors, where they are not in the parameters
  std::int64_t header = 0;   ///< the header, and what fills parts up to their alignment

  /// The bytes of the page.
  [[nodiscard]] constexpr std::int64_t total() const { return codes + scales + lengths + header; }
};

static_assert(cache_page_format{}.bytes() == 9760 && cache_page_format{}.read_bytes() == 9376);
static_assert(cache_page_format{128, 4, 4, 1, 2}.read_bytes() == 9120);

/// The index of token j of a page in lists of tokens. Tokens in the same row of all tiles, which one lane has, are
/// neighbours.
[[nodiscard]] TESSERA_FN constexpr int token_slot(int token) {
  return token % 8 * 8 + token / 8;
}

/// The index of channel d in lists of channels. The channels of two strips that are a lane's columns are eight
/// neighbours.
[[nodiscard]] TESSERA_FN constexpr int channel_slot(int channel) {
  return channel / 32 * 32 + channel % 8 / 2 * 8 + channel / 16 % 2 * 4 + channel / 8 % 2 * 2 + channel % 2;
}

/// The lane, field and half in which a code of a strip is.
struct code_coordinates {
  int lane;   ///< the lane of the warp that has the code
  int field;  ///< 4 * tile + register
  int half;   ///< half of the pair: 0 lower, 1 upper

  /// The coordinates of an element of one of the four tiles.
  [[nodiscard]] TESSERA_FN static constexpr code_coordinates of(int tile, int row, int column) {
    return {row % 8 * 4 + column % 8 / 2, 4 * tile + row / 8 + 2 * (column / 8), column % 2};
  }
  /// The number of the tile of 16 x 16.
  [[nodiscard]] TESSERA_FN constexpr int tile() const { return field / 4; }
  /// The row in the tile.
  [[nodiscard]] TESSERA_FN constexpr int row() const { return lane / 4 + 8 * (field % 2); }
  /// The column in the tile.
  [[nodiscard]] TESSERA_FN constexpr int column() const { return lane % 4 * 2 + half + 8 * (field % 4 / 2); }
};

/// The words of one lane of a strip.
struct lane_codes {
  static constexpr int fields = 16;  ///< fields of a lane in each half
  std::uint32_t words[8] = {};       ///< the words, as many as a code has bits

  /// Writes a code to a field that is 0.
  TESSERA_FN constexpr void put(int bits, int field, int half, std::uint32_t code) {
    if (bits == 3 && field == 15) {
      for (int i = 0; i < 3; ++i) {
        words[i] |= (code >> i & 1U) << (15 + 16 * half);
      }
    } else {
      words[field / in_a_word(bits)] |= code << (bits * (field % in_a_word(bits)) + 16 * half);
    }
  }
  /// The code in a field.
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t get(int bits, int field, int half) const {
    if (bits == 3 && field == 15) {
      int const bit = 15 + 16 * half;
      return (words[0] >> bit & 1U) | (words[1] >> bit & 1U) << 1 | (words[2] >> bit & 1U) << 2;
    }
    std::uint32_t const word = words[field / in_a_word(bits)];
    return word >> (bits * (field % in_a_word(bits)) + 16 * half) & ((1U << bits) - 1U);
  }

  /// The index of word `word` of a lane of strip `strip`, in words from the start of the codes.
  [[nodiscard]] TESSERA_FN static constexpr int slot(int bits, int strip, int lane, int word) {
    return bits == 8 ? strip * 256 + word / 4 * 128 + lane * 4 + word % 4 : (strip * 32 + lane) * bits + word;
  }

 private:
  /// The fields in a half of a word.
  [[nodiscard]] TESSERA_FN static constexpr int in_a_word(int bits) { return 16 / bits; }
};

/// Reads a single code from the codes of keys or values that begin at `words`.
[[nodiscard]] TESSERA_FN constexpr std::uint32_t read_code(std::uint32_t const* words, int bits, int strip,
                                                           code_coordinates const& at) {
  lane_codes codes;
  for (int word = 0; word < bits; ++word) {
    codes.words[word] = words[lane_codes::slot(bits, strip, at.lane, word)];
  }
  return codes.get(bits, at.field, at.half);
}

/// The number of pages of a sequence that are complete and written. The tokens behind them stay uncompressed: at least
/// `window` of a longer sequence and at most 63 more. `window` is a multiple of 64.
[[nodiscard]] TESSERA_FN constexpr std::int64_t sealed_pages(std::int64_t length, std::int64_t window) {
  return length > window ? (length - window) / cache_page_format::tokens : 0;
}

}  // namespace v0
}  // namespace tessera
