// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The programs that decode a stream (entropy/weight_stream.hpp) to weights: read_codebook, then decode_weights.
///
/// The stream may hold any bytes: nothing outside the stream is read, nothing outside the output is written, and every
/// loop ends. A corrupt block is reported and becomes zeros. If the header or the codebook is corrupt, only that is
/// reported, and all weights become zeros.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/little_endian.hpp>
#include <tessera/core/status.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/weights/block.hpp>
#include <tessera/program/weights/checksum.hpp>

namespace tessera {
inline namespace v0 {

/// The result of read_codebook, for decode_weights.
template <class Coder>
struct coder_decode_table {
  typename Coder::decode_table table;  ///< for popping
  exponent_window window;              ///< the window of the exponents
  std::uint32_t is_sound;              ///< 1 if header and tables are sound
};
/// The result of read_codebook for pairs of exponent codes.
using weight_decode_table = coder_decode_table<pair_coder>;

/// The arguments and workspace that the programs of one decoding share. The host fixes `spec`; the header must agree
/// with it. Coder is the one whose table they use.
template <class T, class Coder = pair_coder>
struct weight_decoding {
  /// The most words of a block that is not raw.
  static constexpr int most_words = std::is_same_v<Coder, pair_coder> ? weight_stream_spec::largest_words
                                                                      : weight_stream_spec::largest_exponent_words;

  weight_stream_spec spec;
  std::uint8_t const* stream = nullptr;        ///< its first byte, at a multiple of 16
  std::int64_t stream_bytes = 0;               ///< bytes of the stream that may be read
  std::int64_t first_block = 0;                ///< the first block to decode
  std::int64_t blocks = 0;                     ///< the number of blocks to decode
  T* weights = nullptr;                        ///< where the weights go, from those of the first block decoded on
  coder_decode_table<Coder>* table = nullptr;  ///< workspace
  bool verify_checksums = true;                ///< whether checksums of blocks are verified, if the stream has any
  bool is_inspected = false;                   ///< whether the stream must be the one with this checksum of its header:
  std::uint32_t header_checksum = 0;           ///< the header's checksum when the stream was inspected
  status_word* status = nullptr;

  /// The header as it is in the stream.
  TESSERA_FN weight_stream_header const& header() const {
    return *reinterpret_cast<weight_stream_header const*>(stream);
  }

  /// Whether the header is one of a stream of `spec`, leaving aside window, size and checksums; and if a stream was
  /// inspected, whether it is that stream's header.
  TESSERA_FN bool header_matches() const {
    weight_stream_header const found = header();
    weight_stream_header expected = spec.header();
    expected.window_base = found.window_base;
    expected.window_extra = found.window_extra;
    expected.total_bytes = found.total_bytes;
    expected.content_checksum = found.content_checksum;
    expected.header_checksum = found.header_checksum;
    auto const* a = reinterpret_cast<std::uint8_t const*>(&found);
    auto const* b = reinterpret_cast<std::uint8_t const*>(&expected);
    bool same = true;
    for (std::size_t i = 0; i < sizeof(found); ++i) {
      same = same && a[i] == b[i];
    }
    exponent_window const window{found.window_base, found.window_extra};
    return same && window_fits(window) && checksum_of(found) == found.header_checksum &&
           (!is_inspected || found.header_checksum == header_checksum) && sections_fit();
  }

  /// Whether a stream can have this window. With a coder of whole exponents it is one exponent.
  TESSERA_FN static constexpr bool window_fits(exponent_window window) {
    constexpr std::uint32_t largest = exponent_split<T>::largest_exponent;
    if constexpr (std::is_same_v<Coder, pair_coder>) {
      return window.fits(largest);
    } else {
      return window.base <= largest && window.extra == 0;
    }
  }

  /// Whether the stream's size is between that of its sections and the bytes that may be read.
  TESSERA_FN bool sections_fit() const {
    return header().total_bytes <= static_cast<std::uint64_t>(stream_bytes) &&
           header().total_bytes >= static_cast<std::uint64_t>(spec.smallest_bytes());
  }

  /// Finds the index entry of a block. Returns false if something that it points to is outside of the stream.
  TESSERA_FN bool find(std::int64_t block, weight_block_index& entry) const {
    entry = reinterpret_cast<weight_block_index const*>(stream + spec.index_offset())[block];
    bool const raw = entry.words == weight_block_index::raw;
    if (raw ? entry.escapes != 0 : entry.words > most_words) {
      return false;
    }
    if (entry.escapes > weight_stream_spec::largest_escapes) {
      return false;
    }
    std::int64_t const begin = spec.payload_begin(entry);
    return begin + spec.payload_bytes(spec.coded_in(block), entry) <= static_cast<std::int64_t>(header().total_bytes);
  }
};

/// Checks header and codebook, and makes the decode table. One group.
template <class T, class Coder = pair_coder>
struct read_codebook {
  static constexpr int lanes = 32;
  struct scratch_type {
    typename Coder::model_type model;  ///< the model of the stream
  };
  weight_decoding<T, Coder> decoding;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type& scratch) const {
    weight_stream_spec const& spec = decoding.spec;
    per_lane<bool, G> sound;
    for (int lane : group) {
      sound[lane] = lane > 0 || decoding.header_matches();
    }
    bool all_sound = all(group, sound);
    if constexpr (std::is_same_v<Coder, pair_coder>) {
      if (all_sound && spec.coder == weight_coder::rans_pairs) {
        all_sound = read_model(group, scratch.model);
      }
      if (all_sound && spec.coder == weight_coder::rans_pairs) {
        fill_table(group, scratch.model);
      }
    } else {
      all_sound = all_sound && read_other_model(group, scratch.model);
    }
    for (int lane : group) {
      if (is_first(lane)) {
        decoding.table->window = {decoding.header().window_base, decoding.header().window_extra};
        decoding.table->is_sound = all_sound ? 1 : 0;
        if (!all_sound) {
          group.report(decoding.status, status_code::bad_header, 0);
        }
      }
    }
  }

 private:
  template <Group G>
  TESSERA_FN bool read_model(G const& group, pair_coder::model_type& model) const {
    std::uint8_t const* const codebook = decoding.stream + decoding.spec.codebook_offset();
    per_lane<std::uint32_t, G> total;
    per_lane<bool, G> sound;
    for (int lane : group) {
      total[lane] = 0;
      sound[lane] =
          lane > 0 || crc32c(codebook, weight_stream_spec::codebook_bytes) == decoding.header().content_checksum;
      for (int symbol = lane; symbol < 256; symbol += lanes) {
        std::uint32_t const frequency =
            codebook[2 * symbol] | (static_cast<std::uint32_t>(codebook[2 * symbol + 1]) << 8);
        model.frequency[symbol] = static_cast<std::uint16_t>(frequency);
        sound[lane] = sound[lane] && frequency < pair_coder::slots;
        total[lane] += frequency;
      }
    }
    bool const all_sound = all(group, sound);
    group.sync();
    return sum(group, total) == pair_coder::slots && all_sound;
  }

  /// Verifies the codebook of a StreamCoder and makes its table, which takes one lane.
  template <Group G>
  TESSERA_FN bool read_other_model(G const& group, typename Coder::model_type& model) const {
    weight_stream_spec const& spec = decoding.spec;
    std::uint8_t const* const codebook = decoding.stream + spec.codebook_offset();
    bool const intact = shared_crc32c(group, codebook, spec.codebook_size(), 0) == decoding.header().content_checksum;
    per_lane<bool, G> sound;
    for (int lane : group) {
      sound[lane] = true;
      if (is_first(lane)) {
        sound[lane] = intact && Coder::load_model(codebook, model);
        if (sound[lane]) {
          Coder::make_decode_table(model, decoding.table->table);
        }
      }
    }
    bool const all_sound = all(group, sound);
    group.sync();
    return all_sound;
  }

  template <Group G>
  TESSERA_FN void fill_table(G const& group, pair_coder::model_type const& model) const {
    std::uint32_t below = 0;
    for (int symbol = 0; symbol < 256; ++symbol) {
      std::uint32_t const frequency = model.frequency[symbol];
      for (int lane : group) {
        for (std::uint32_t offset = static_cast<std::uint32_t>(lane); offset < frequency; offset += lanes) {
          decoding.table->table.entry[below + offset] =
              pair_coder::decode_entry(frequency, offset, static_cast<std::uint32_t>(symbol));
        }
      }
      below += frequency;
    }
    group.sync();
  }
};

/// Decodes blocks. One group for each block.
template <class T, class Mantissa, class Steps = weight_block_steps<T, Mantissa>>
struct decode_weights {
  static constexpr int lanes = 32;
  using scratch_type = typename Steps::scratch_type;
  weight_decoding<T, typename Steps::coder_type> decoding;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    decode(group, decoding.first_block + which, decoding.weights + which * decoding.spec.block_weights(), scratch);
  }

  /// Decodes a block into `weights`. Returns false if it is corrupt, after a report and with zeros as weights. If the
  /// header is corrupt, nothing more is reported.
  template <Group G>
  TESSERA_FN bool decode(G const& group, std::int64_t block, T* weights, scratch_type& scratch) const {
    weight_stream_spec const& spec = decoding.spec;
    int const count = static_cast<int>(spec.weights_in(block));
    weight_block_index entry;
    status_code code = status_code::corrupt_stream;
    bool const is_opened = decoding.table->is_sound != 0;
    bool sound = is_opened && decoding.find(block, entry) && decode_sound(group, block, entry, weights, scratch);
    group.sync();
    if (sound && spec.block_checksums && decoding.verify_checksums) {
      std::uint8_t const* const stored = decoding.stream + spec.checksums_offset() + 4 * block;
      sound = block_checksum(group, spec, decoding.stream, block, entry) == load_little_endian<std::uint32_t>(stored);
      code = sound ? code : status_code::bad_checksum;
    }
    if (!sound) {
      for (int lane : group) {
        for (int i = lane; i < count; i += lanes) {
          weights[i] = from_bits<T>(0);
        }
        if (is_first(lane) && is_opened) {
          group.report(decoding.status, code, block);
        }
      }
    }
    return sound;
  }

  /// The portable steps, for blocks that are not whole.
  using base_steps = weight_block_steps<T, Mantissa>;

  /// Joins the weights of a raw block, whose payload is the exponents themselves.
  template <Group G>
  TESSERA_FN static void join_raw(G const& group, std::uint8_t const* payload, std::uint8_t const* planes,
                                  std::uint8_t const* normalizers, int log2_normalizer_block, int count, int coded,
                                  T* weights) {
    for (int row = 0; row < coded / base_steps::row_weights; ++row) {
      for (int lane : group) {
        for (int i = 0; i < base_steps::weights_per_lane; ++i) {
          int const position = (row * lanes + lane) * base_steps::weights_per_lane + i;
          if (position < count) {
            std::uint32_t const read = load_planes<base_steps::exponent_planes>(payload, coded, row, lane, i);
            std::uint32_t const exponent = read & exponent_split<T>::largest_exponent;
            std::uint32_t const residual = load_planes<base_steps::residual_planes>(planes, coded, row, lane, i);
            weights[position] = base_steps::join_weight({exponent, residual, read > exponent}, normalizers,
                                                        log2_normalizer_block, position);
          }
        }
      }
    }
  }

 private:
  template <Group G>
  TESSERA_FN bool decode_sound(G const& group, std::int64_t block, weight_block_index const& entry, T* weights,
                               scratch_type& scratch) const {
    weight_stream_spec const& spec = decoding.spec;
    int const count = static_cast<int>(spec.weights_in(block));
    int const coded = static_cast<int>(spec.coded_in(block));
    std::uint8_t const* const planes = decoding.stream + spec.planes_offset() + spec.planes_before(block);
    std::uint8_t const* const payload = decoding.stream + spec.payload_begin(entry);
    std::uint8_t const* normalizers = nullptr;
    if (spec.log2_normalizer_block > 0) {
      normalizers = decoding.stream + spec.normalizers_offset() + spec.normalizers_before(block);
    }
    if (entry.words == weight_block_index::raw) {
      join_raw(group, payload, planes, normalizers, spec.log2_normalizer_block, count, coded, weights);
      return true;
    }
    if (Steps::has_words(spec)) {
      if (!Steps::unpack(group, coded, decoding.table->table, payload, payload + weight_stream_spec::states_bytes,
                         entry.words, scratch)) {
        return false;
      }
    } else if constexpr (std::is_same_v<scratch_type, weight_block_scratch>) {
      load_codes(group, payload, coded, scratch);
    }
    Steps::join(group, decoding.table->window, planes, normalizers, spec.log2_normalizer_block, count, coded, scratch,
                weights);
    group.sync();
    return patch(group, payload + spec.escapes_offset(coded, entry.words), entry.escapes, planes, normalizers, count,
                 coded, weights);
  }

  template <Group G>
  TESSERA_FN static void load_codes(G const& group, std::uint8_t const* payload, int coded, scratch_type& scratch) {
    for (int row = 0; row < coded / base_steps::row_weights; ++row) {
      for (int lane : group) {
        for (int i = 0; i < base_steps::weights_per_lane; i += 2) {
          std::uint32_t const first = load_planes<base_steps::code_planes>(payload, coded, row, lane, i);
          std::uint32_t const second = load_planes<base_steps::code_planes>(payload, coded, row, lane, i + 1);
          int const position = (row * lanes + lane) * base_steps::weights_per_lane + i;
          scratch.codes[position / 2] = static_cast<std::uint8_t>(pair_symbol(first, second));
        }
      }
    }
    group.sync();
  }

  /// Writes the weights of escapes. Returns false if an entry is invalid.
  template <Group G>
  TESSERA_FN bool patch(G const& group, std::uint8_t const* escapes, int escape_count, std::uint8_t const* planes,
                        std::uint8_t const* normalizers, int count, int coded, T* weights) const {
    per_lane<bool, G> sound;
    for (int lane : group) {
      sound[lane] = true;
      for (int i = lane; i < escape_count; i += lanes) {
        std::uint32_t const entry = load_little_endian<std::uint32_t>(escapes + 4 * i);
        int const previous =
            i == 0 ? -1 : static_cast<int>(load_little_endian<std::uint16_t>(escapes + 4 * i - sizeof(entry)));
        if (!weight_escape::is_valid<T, Mantissa>(entry, previous, count)) {
          sound[lane] = false;
          continue;
        }
        int const position = static_cast<int>(weight_escape::position(entry));
        std::uint32_t const residual = base_steps::residual_at(planes, coded, position);
        weights[position] =
            base_steps::join_weight({weight_escape::exponent(entry), residual, weight_escape::lost_nan(entry)},
                                    normalizers, decoding.spec.log2_normalizer_block, position);
      }
    }
    return all(group, sound);
  }
};

/// Makes zeros of blocks with a wrong checksum, after a decoder that verifies no blocks' checksums and that wrote in
/// the table whether header and codebook are sound. One group for each block.
template <class T>
struct verify_blocks {
  static constexpr int lanes = 32;
  struct scratch_type {};
  weight_decoding<T> decoding;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    weight_stream_spec const& spec = decoding.spec;
    std::int64_t const block = decoding.first_block + which;
    weight_block_index entry;
    // where these do not hold, the decoder has reported it
    if (decoding.table->is_sound == 0 || !decoding.find(block, entry)) {
      return;
    }
    std::uint8_t const* const stored = decoding.stream + spec.checksums_offset() + 4 * block;
    auto const expected = load_little_endian<std::uint32_t>(stored);
    if (block_checksum(group, spec, decoding.stream, block, entry) == expected) {
      return;
    }
    T* const weights = decoding.weights + which * spec.block_weights();
    for (int lane : group) {
      for (std::int64_t i = lane; i < spec.weights_in(block); i += lanes) {
        weights[i] = from_bits<T>(0);
      }
      if (is_first(lane)) {
        group.report(decoding.status, status_code::bad_checksum, block);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
