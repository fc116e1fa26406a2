// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The four steps of coding one block of weights, for any group of 32 lanes: split, pack, unpack, join.
///
///     split    weights            -> exponent codes (a pair a byte, in the weights' order), residual planes, escapes
///     pack     exponent codes     -> lane states and words of the rANS coder
///     unpack   states and words   -> exponent codes
///     join     codes and planes   -> weights (escapes are patched after it)
///
/// This is the executable specification of the stream format. Faster versions of single steps
/// (program/weights/block_avx2.hpp and its neighbours) replace them one by one and are tested against these.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/little_endian.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/entropy/bit_planes.hpp>
#include <tessera/entropy/exponent_split.hpp>
#include <tessera/entropy/exponent_window.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/weights/codebook.hpp>
#include <tessera/program/weights/symbol_lanes.hpp>
#include <tessera/quantize/keep_mantissa.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

/// The memory that a group shares while it codes a block.
struct weight_block_scratch {
  /// One byte a pair of weights; weight 2 i is in the low half of byte i.
  std::uint8_t codes[1 << (weight_stream_spec::largest_log2_block - 1)];
  /// Words are written from the end; those that do not fit are only counted. There are 32 more, so that no step leaves
  /// the array.
  std::uint16_t words[weight_stream_spec::largest_words + 32];
  std::uint32_t escapes[weight_stream_spec::largest_escapes];  ///< as weight_escape packs them
};

/// An entry of a block's list of escapes.
struct weight_escape {
  /// An entry of a list of escapes.
  TESSERA_FN static constexpr std::uint32_t pack(std::uint32_t position, std::uint32_t exponent, bool lost_nan) {
    return position | (exponent << 16) | (lost_nan ? 1u << 24 : 0);
  }
  /// The position of the weight in the block.
  TESSERA_FN static constexpr std::uint32_t position(std::uint32_t entry) { return entry & 0xffffu; }
  /// The exponent field.
  TESSERA_FN static constexpr std::uint32_t exponent(std::uint32_t entry) { return (entry >> 16) & 0xffu; }
  /// Whether the value is a NaN that kept no mantissa bit.
  TESSERA_FN static constexpr bool lost_nan(std::uint32_t entry) { return (entry >> 24) != 0; }

  /// Whether an encoder can have written this entry for a block of `count` weights, after an entry with the position
  /// `previous` (-1: it is the first entry). Positions ascend, so that no two entries are of one weight, in whatever
  /// order a decoder takes them. Only NaNs that kept no mantissa bit are marked as lost.
  template <class T, class Mantissa>
  TESSERA_FN static constexpr bool is_valid(std::uint32_t entry, int previous, int count) {
    constexpr std::uint32_t largest = exponent_split<T>::largest_exponent;
    constexpr std::uint32_t lost = pack(0, largest, true) >> 16;
    std::uint32_t const kept = entry >> 16;
    int const at = static_cast<int>(position(entry));
    return previous < at && at < count && (kept <= largest || (Mantissa::kept_bits == 0 && kept == lost));
  }
};

/// The weights of one block, and how they are kept.
template <class T>
struct weight_block {
  T const* weights = nullptr;                 ///< the weights of the block
  std::uint8_t const* normalizers = nullptr;  ///< the normalizers of the block; null if there are none
  int log2_normalizer_block = 0;              ///< weights of a normalizer, as a power of two; 0: none
  int count = 0;                              ///< weights in the block
  int coded = 0;                              ///< count rounded up to the granularity
  std::uint64_t first = 0;                    ///< position of the block's first weight in the tensor
  std::uint64_t seed = 0;                     ///< for stochastic rounding

  /// The kept value of weight i.
  template <class Mantissa>
  TESSERA_FN constexpr kept_value keep(int i) const {
    std::uint32_t const bits = to_bits(weights[i]);
    if constexpr (Mantissa::template is_lossless<T>) {
      return Mantissa::template quantize<T>(bits);
    } else {
      std::uint32_t random = 0;
      if constexpr (Mantissa::rounding == mantissa_rounding::stochastic) {
        random = random_bits(seed, first + static_cast<std::uint64_t>(i));
      }
      if (normalizers != nullptr) {
        return Mantissa::template quantize_normalized<T>(bits, normalizers[i >> log2_normalizer_block], random);
      }
      return Mantissa::template quantize<T>(bits, random);
    }
  }

  /// A counter-based generator (the finaliser of splitmix64): a position always has the same bits.
  TESSERA_FN static constexpr std::uint32_t random_bits(std::uint64_t seed, std::uint64_t counter) {
    std::uint64_t mixed = seed + (counter + 1) * 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return static_cast<std::uint32_t>((mixed ^ (mixed >> 31)) >> 32);
  }
};

/// The portable steps for values of type T of which Mantissa keeps a part.
template <class T, class Mantissa>
struct weight_block_steps {
  static constexpr int lanes = 32;
  static constexpr int weights_per_lane = 16 / static_cast<int>(sizeof(T));
  static constexpr int pairs_per_lane = weights_per_lane / 2;  ///< symbols of a lane in a row
  static constexpr int row_weights = lanes * weights_per_lane;
  /// The coder of the steps, whose tables they take.
  using coder_type = pair_coder;
  using scratch_type = weight_block_scratch;
  /// The planes of signs and mantissas.
  static constexpr bit_planes residual_planes{1 + Mantissa::kept_bits, weights_per_lane};
  /// The planes of 4-bit codes.
  static constexpr bit_planes code_planes{4, weights_per_lane};
  /// The planes of the exponents of raw blocks.
  static constexpr bit_planes exponent_planes{scalar_traits<T>::exponent_bits + (Mantissa::kept_bits == 0 ? 1 : 0),
                                              weights_per_lane};

  /// Whether blocks have states and words of the coder; else they have codes of four bits.
  TESSERA_FN static constexpr bool has_words(weight_stream_spec const& spec) {
    return spec.coder == weight_coder::rans_pairs;
  }

  /// The code of a kept weight. NaNs that lost their mantissa have none.
  TESSERA_FN static constexpr std::uint32_t code_of(exponent_window window, kept_value kept) {
    return kept.lost_nan ? exponent_window::escape_code : window.code(kept.exponent);
  }

  /// Adds the exponents of kept weights to 256 counts, to which other groups may add at the same time.
  template <Group G>
  TESSERA_FN static void count(G const& group, weight_block<T> const& block, std::uint64_t* counts) {
    for (int lane : group) {
      for (int i = lane; i < block.count; i += lanes) {
        group.atomic_add(counts[block.template keep<Mantissa>(i).exponent], 1);
      }
    }
  }

  /// Writes codes and planes, and returns the number of escapes. Those that fit are in the scratch, in ascending order
  /// of positions. `table`: pairs that it cannot code become two escapes; null for the fixed coder, which codes all.
  template <Group G>
  TESSERA_FN static int split(G const& group, weight_block<T> const& block, exponent_window window,
                              pair_coder::encode_table const* table, std::uint8_t* planes,
                              weight_block_scratch& scratch) {
    constexpr bit_planes layout = residual_planes;
    clear(group, planes, layout.bytes(block.coded));
    int escapes = 0;
    for (int row = 0; row < block.coded / row_weights; ++row) {
      per_lane<int, G> found;
      for (int lane : group) {
        found[lane] = split_lane(block, window, table, planes, scratch, row, lane);
      }
      per_lane<int, G> before = found;
      int const in_row = exclusive_sum(group, before);
      if (in_row > 0 && escapes + in_row <= weight_stream_spec::largest_escapes) {
        for (int lane : group) {
          if (found[lane] > 0) {
            list_escapes(block, scratch, row, lane, escapes + before[lane]);
          }
        }
      }
      escapes += in_row;
    }
    group.sync();
    return escapes;
  }

  /// Codes all pairs, from the last to the first. The words end at the end of the scratch's array.
  template <Group G>
  TESSERA_FN static packed_block<G> pack(G const& group, int coded, pair_coder::encode_table const& table,
                                         weight_block_scratch& scratch) {
    return coding::pack(group, coded / row_weights, table, scratch.codes, scratch.words,
                        weight_stream_spec::largest_words);
  }

  /// The words of a block end at this one of the scratch.
  static constexpr int words_end = weight_stream_spec::largest_words + 32;
  /// The most words of a block that is not raw.
  static constexpr int most_words = weight_stream_spec::largest_words;

  /// Undoes pack. `states` and `words` are those of the payload. Returns false if the states or the number of words do
  /// not fit the codes that came out.
  template <Group G>
  TESSERA_FN static bool unpack(G const& group, int coded, pair_coder::decode_table const& table,
                                std::uint8_t const* states, std::uint8_t const* words, int word_count,
                                weight_block_scratch& scratch) {
    return coding::unpack(group, coded / row_weights, table, states, words, word_count, scratch.codes);
  }

  /// Joins weights from codes and planes. Escape codes become an exponent that is patched later. `normalizers` may be
  /// null.
  template <Group G>
  TESSERA_FN static void join(G const& group, exponent_window window, std::uint8_t const* planes,
                              std::uint8_t const* normalizers, int log2_normalizer_block, int count, int coded,
                              weight_block_scratch const& scratch, T* weights) {
    for (int row = 0; row < coded / row_weights; ++row) {
      for (int lane : group) {
        for (int i = 0; i < weights_per_lane; ++i) {
          int const position = (row * lanes + lane) * weights_per_lane + i;
          if (position < count) {
            std::uint32_t const exponent = window.exponent(code_at(scratch, position));
            std::uint32_t const residual = load_planes<residual_planes>(planes, coded, row, lane, i);
            weights[position] = join_weight({exponent, residual, false}, normalizers, log2_normalizer_block, position);
          }
        }
      }
    }
  }

  /// The weight at a position of the block, from its kept value.
  TESSERA_FN static constexpr T join_weight(kept_value kept, std::uint8_t const* normalizers, int log2_normalizer_block,
                                            int position) {
    using bits_type = typename scalar_traits<T>::bits_type;
    if constexpr (!Mantissa::template is_lossless<T>) {
      if (normalizers != nullptr) {
        std::uint32_t const normalizer = normalizers[position >> log2_normalizer_block];
        return from_bits<T>(static_cast<bits_type>(Mantissa::template restore_normalized<T>(kept, normalizer)));
      }
    }
    return from_bits<T>(static_cast<bits_type>(Mantissa::template restore<T>(kept)));
  }

  /// The residual of the weight at a position of a block.
  TESSERA_FN static constexpr std::uint32_t residual_at(std::uint8_t const* planes, int coded, int position) {
    int const lane_row = position / weights_per_lane;
    return load_planes<residual_planes>(planes, coded, lane_row / lanes, lane_row % lanes, position % weights_per_lane);
  }

  /// The code at a position of the block.
  TESSERA_FN static constexpr std::uint32_t code_at(weight_block_scratch const& scratch, int position) {
    return (scratch.codes[position / 2] >> (4 * (position % 2))) & 15u;
  }

  /// Writes `count` zeros.
  template <Group G>
  TESSERA_FN static void clear(G const& group, std::uint8_t* bytes, std::int64_t count) {
    for (int lane : group) {
      for (std::int64_t i = lane; i < count; i += lanes) {
        bytes[i] = 0;
      }
    }
    group.sync();
  }

 private:
  using coding = symbol_lanes<pair_coder, pairs_per_lane>;

  /// Splits one row of one lane: writes codes to the scratch and residuals to the planes. Returns the number of
  /// escapes.
  TESSERA_FN static int split_lane(weight_block<T> const& block, exponent_window window,
                                   pair_coder::encode_table const* table, std::uint8_t* planes,
                                   weight_block_scratch& scratch, int row, int lane) {
    int escapes = 0;
    for (int pair = 0; pair < pairs_per_lane; ++pair) {
      int const first = (row * lanes + lane) * weights_per_lane + 2 * pair;
      std::uint32_t code[2] = {0, 0};
      for (int i = 0; i < 2; ++i) {
        if (first + i < block.count) {
          kept_value const kept = block.template keep<Mantissa>(first + i);
          code[i] = code_of(window, kept);
          store_planes<residual_planes>(planes, block.coded, row, lane, 2 * pair + i, kept.residual);
        }
      }
      std::uint32_t symbol = pair_symbol(code[0], code[1]);
      if (table != nullptr && !pair_coder::can_code(table->entry[symbol])) {
        symbol = escape_pair;
      }
      scratch.codes[first / 2] = static_cast<std::uint8_t>(symbol);
      escapes += (symbol & 15) == exponent_window::escape_code && first < block.count ? 1 : 0;
      escapes += (symbol >> 4) == exponent_window::escape_code && first + 1 < block.count ? 1 : 0;
    }
    return escapes;
  }

  /// Lists the escapes of one row of one lane, from entry `next` on.
  TESSERA_FN static void list_escapes(weight_block<T> const& block, weight_block_scratch& scratch, int row, int lane,
                                      int next) {
    for (int i = 0; i < weights_per_lane; ++i) {
      int const position = (row * lanes + lane) * weights_per_lane + i;
      if (position < block.count && code_at(scratch, position) == exponent_window::escape_code) {
        kept_value const kept = block.template keep<Mantissa>(position);
        scratch.escapes[next++] =
            weight_escape::pack(static_cast<std::uint32_t>(position), kept.exponent, kept.lost_nan);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
