// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks the blocks of a stream of codes of a fixed length and writes where they are, for
/// tile/source/coded_weights.hpp. open_weights (program/weights/reader.hpp) has checked the header before.
///
/// What decode_weights refuses is refused, with its message; such blocks are marked as lost. What is written lies
/// within the stream, so that nobody who reads the blocks later has to look at sizes. Cost: the index is read and
/// written, and codes and escapes are read, half of a byte a weight. With checksums the whole stream is read.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/little_endian.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/status.hpp>
#include <tessera/entropy/exponent_split.hpp>
#include <tessera/entropy/exponent_window.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/weights/block.hpp>
#include <tessera/program/weights/checksum.hpp>
#include <tessera/program/weights/decode.hpp>
#include <tessera/quantize/keep_mantissa.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/source/coded_weights.hpp>

namespace tessera {
inline namespace v0 {

/// One group for each block.
template <class T>
struct open_blocks {
  static constexpr int lanes = 32;
  struct scratch_type {};

  weight_decoding<T> decoding;  ///< the stream, opened
  opened_block* blocks;         ///< all blocks of the stream

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t block, scratch_type&) const {
    weight_block_index entry{};
    bool const is_opened = decoding.table->is_sound != 0;
    status_code code = status_code::corrupt_stream;
    escape_list found{};
    bool sound = is_opened && decoding.find(block, entry);
    if (sound) {
      found = look_at_escapes(group, block, entry);
      sound = found.is_valid;
    }
    weight_stream_spec const& spec = decoding.spec;
    if (sound && spec.block_checksums && decoding.verify_checksums) {
      std::uint8_t const* const stored = decoding.stream + spec.checksums_offset() + 4 * block;
      sound = block_checksum(group, spec, decoding.stream, block, entry) == load_little_endian<std::uint32_t>(stored);
      code = sound ? code : status_code::bad_checksum;
    }
    for (int lane : group) {
      if (is_first(lane)) {
        blocks[block] =
            opened_block::of(entry.position, sound ? kind_of(entry, found) : block_kind::lost, entry.escapes);
        if (!sound && is_opened) {
          group.report(decoding.status, code, block);
        }
      }
    }
  }

 private:
  struct escape_list {
    bool is_valid;       ///< whether an encoder can have listed them
    bool matches_codes;  ///< whether their weights, and no others, have the code of escapes
  };

  TESSERA_FN block_kind kind_of(weight_block_index const& entry, escape_list const& escapes) const {
    exponent_window const window = decoding.table->window;
    constexpr std::uint32_t last = exponent_split<T>::largest_exponent;
    bool const is_usual = window.base + exponent_window::escape_code <= last && window.extra + 1U <= last;
    return entry.words == weight_block_index::raw ? block_kind::raw
           : is_usual && escapes.matches_codes    ? block_kind::coded
                                                  : block_kind::unusual;
  }
  template <Group G>
  TESSERA_FN escape_list look_at_escapes(G const& group, std::int64_t block, weight_block_index const& entry) const {
    using mantissa = keep_mantissa<scalar_traits<T>::mantissa_bits>;
    weight_stream_spec const& spec = decoding.spec;
    std::uint8_t const* const codes = decoding.stream + spec.payload_begin(entry);
    std::uint8_t const* const escapes = codes + spec.escapes_offset(spec.coded_in(block), entry.words);
    auto const count = static_cast<int>(spec.weights_in(block));
    per_lane<bool, G> valid;
    per_lane<bool, G> without_code;
    per_lane<int, G> escape_codes;
    for (int lane : group) {
      valid[lane] = true;
      without_code[lane] = true;
      for (int i = lane; i < entry.escapes; i += lanes) {
        auto const own = load_little_endian<std::uint32_t>(escapes + 4 * i);
        int const previous =
            i > 0 ? static_cast<int>(weight_escape::position(load_little_endian<std::uint32_t>(escapes + 4 * (i - 1))))
                  : -1;
        bool const is_valid = weight_escape::is_valid<T, mantissa>(own, previous, count);
        std::uint32_t const at = weight_escape::position(own);
        valid[lane] = valid[lane] && is_valid;
        without_code[lane] =
            without_code[lane] && is_valid && (codes[at / 2] >> (4 * (at % 2)) & 15U) == exponent_window::escape_code;
      }
      escape_codes[lane] = entry.words == weight_block_index::raw ? 0 : escape_codes_of(lane, codes, count);
    }
    bool const are_all = sum(group, escape_codes) == entry.escapes;
    return {all(group, valid), all(group, without_code) && are_all};
  }
  /// How many of a lane's part of the codes of `count` weights are the code of escapes.
  TESSERA_FN static int escape_codes_of(int lane, std::uint8_t const* codes, int count) {
    int found = 0;
    for (int first = 8 * lane; first < count; first += 8 * lanes) {
      auto const eight = load_little_endian<std::uint32_t>(codes + first / 2);
      std::uint32_t const inside = count - first >= 8 ? ~0U : (1U << (4 * (count - first))) - 1;
      found += popcount(exponent_window::escapes_among(eight) & inside);
    }
    return found;
  }
};

}  // namespace v0
}  // namespace tessera
