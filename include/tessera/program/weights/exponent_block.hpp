// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The four steps of coding one block of weights whose exponents are symbols of any StreamCoder, for any group of 32
/// lanes. They stand in for weight_block_steps (program/weights/block.hpp), which codes pairs of 4-bit codes.
///
///     using steps = tessera::exponent_block_steps<tessera::bfloat16, tessera::keep_mantissa<7>, tessera::tans_coder>;
///     using encode = tessera::encode_weights<tessera::bfloat16, tessera::keep_mantissa<7>, steps>;
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/stream_coder.hpp>
#include <tessera/config.hpp>
#include <tessera/entropy/bit_planes.hpp>
#include <tessera/entropy/exponent_window.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/weights/block.hpp>
#include <tessera/program/weights/symbol_lanes.hpp>
#include <tessera/quantize/keep_mantissa.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

/// The memory that a group shares while it codes a block of exponents.
template <class Symbol>
struct exponent_block_scratch {
  Symbol exponents[1 << weight_stream_spec::largest_log2_block];  ///< as they are coded, in the weights' order
  /// Words are written from the end; those that do not fit are only counted. There are 32 more, so that no step leaves
  /// the array.
  std::uint16_t words[weight_stream_spec::largest_exponent_words + 32];
  std::uint32_t escapes[weight_stream_spec::largest_escapes];  ///< as weight_escape packs them
};

/// The portable steps for values of type T of which Mantissa keeps a part. An exponent that the coder's model cannot
/// code, and a NaN that lost its mantissa, is an escape; the exponent `window.base` is coded in its place.
template <class T, class Mantissa, StreamCoder Coder>
struct exponent_block_steps : weight_block_steps<T, Mantissa> {
  /// The steps of pairs of codes, of which planes and joined weights are the same.
  using portable = weight_block_steps<T, Mantissa>;
  /// The coder of the steps, whose tables they take.
  using coder_type = Coder;
  /// The type of a coded exponent.
  using symbol_type = typename Coder::symbol_type;
  using scratch_type = exponent_block_scratch<symbol_type>;
  using portable::lanes;
  using portable::residual_planes;
  using portable::row_weights;
  using portable::weights_per_lane;

  static constexpr int most_words = weight_stream_spec::largest_exponent_words;  ///< the most words of a coded block
  static constexpr int words_end = most_words + lanes;  ///< the words of a block end at this one of the scratch

  /// Every coded block has states and words.
  TESSERA_FN static constexpr bool has_words(weight_stream_spec const&) { return true; }

  /// Writes exponents and planes, and returns the number of escapes. Those that fit are in the scratch, in ascending
  /// order of positions.
  template <Group G>
  TESSERA_FN static int split(G const& group, weight_block<T> const& block, exponent_window window,
                              typename Coder::encode_table const* table, std::uint8_t* planes, scratch_type& scratch) {
    constexpr bit_planes layout = residual_planes;
    portable::clear(group, planes, layout.bytes(block.coded));
    int escapes = 0;
    for (int row = 0; row < block.coded / row_weights; ++row) {
      per_lane<int, G> found;
      for (int lane : group) {
        found[lane] = split_lane(block, window, *table, planes, scratch, row, lane);
      }
      per_lane<int, G> before = found;
      int const in_row = exclusive_sum(group, before);
      if (in_row > 0 && escapes + in_row <= weight_stream_spec::largest_escapes) {
        for (int lane : group) {
          if (found[lane] > 0) {
            list_escapes(block, *table, scratch, row, lane, escapes + before[lane]);
          }
        }
      }
      escapes += in_row;
    }
    group.sync();
    return escapes;
  }

  /// Codes all exponents, from the last to the first. The words end at the end of the scratch's array.
  template <Group G>
  TESSERA_FN static packed_block<G> pack(G const& group, int coded, typename Coder::encode_table const& table,
                                         scratch_type& scratch) {
    return coding::pack(group, coded / row_weights, table, scratch.exponents, scratch.words, most_words);
  }

  /// Undoes pack. Returns false if the states or the number of words do not fit the exponents that came out, or if the
  /// type has no such exponents.
  template <Group G>
  TESSERA_FN static bool unpack(G const& group, int coded, typename Coder::decode_table const& table,
                                std::uint8_t const* states, std::uint8_t const* words, int word_count,
                                scratch_type& scratch) {
    bool const fits = coding::unpack(group, coded / row_weights, table, states, words, word_count, scratch.exponents);
    per_lane<bool, G> sound;
    for (int lane : group) {
      sound[lane] = fits;
      for (int i = lane; i < coded; i += lanes) {
        sound[lane] = sound[lane] && scratch.exponents[i] <= exponent_split<T>::largest_exponent;
      }
    }
    return all(group, sound);
  }

  /// Joins weights from exponents and planes; escapes are patched later. `normalizers` may be null.
  template <Group G>
  TESSERA_FN static void join(G const& group, exponent_window, std::uint8_t const* planes,
                              std::uint8_t const* normalizers, int log2_normalizer_block, int count, int coded,
                              scratch_type const& scratch, T* weights) {
    for (int row = 0; row < coded / row_weights; ++row) {
      for (int lane : group) {
        for (int i = 0; i < weights_per_lane; ++i) {
          int const position = (row * lanes + lane) * weights_per_lane + i;
          if (position < count) {
            std::uint32_t const exponent = scratch.exponents[position];
            std::uint32_t const residual = load_planes<residual_planes>(planes, coded, row, lane, i);
            weights[position] =
                portable::join_weight({exponent, residual, false}, normalizers, log2_normalizer_block, position);
          }
        }
      }
    }
  }

 private:
  using coding = symbol_lanes<Coder, weights_per_lane>;

  /// Whether a kept weight is an escape.
  TESSERA_FN static bool escapes_from(typename Coder::encode_table const& table, kept_value kept) {
    return kept.lost_nan || !Coder::can_code(table, static_cast<symbol_type>(kept.exponent));
  }

  /// Splits one row of one lane: writes exponents to the scratch and residuals to the planes. Returns the number of
  /// escapes.
  TESSERA_FN static int split_lane(weight_block<T> const& block, exponent_window window,
                                   typename Coder::encode_table const& table, std::uint8_t* planes,
                                   scratch_type& scratch, int row, int lane) {
    int escapes = 0;
    for (int i = 0; i < weights_per_lane; ++i) {
      int const position = (row * lanes + lane) * weights_per_lane + i;
      std::uint32_t exponent = window.base;
      if (position < block.count) {
        kept_value const kept = block.template keep<Mantissa>(position);
        bool const is_escape = escapes_from(table, kept);
        exponent = is_escape ? exponent : kept.exponent;
        escapes += is_escape ? 1 : 0;
        store_planes<residual_planes>(planes, block.coded, row, lane, i, kept.residual);
      }
      scratch.exponents[position] = static_cast<symbol_type>(exponent);
    }
    return escapes;
  }

  /// Lists the escapes of one row of one lane, from entry `next` on.
  TESSERA_FN static void list_escapes(weight_block<T> const& block, typename Coder::encode_table const& table,
                                      scratch_type& scratch, int row, int lane, int next) {
    for (int i = 0; i < weights_per_lane; ++i) {
      int const position = (row * lanes + lane) * weights_per_lane + i;
      if (position < block.count) {
        kept_value const kept = block.template keep<Mantissa>(position);
        if (escapes_from(table, kept)) {
          scratch.escapes[next++] =
              weight_escape::pack(static_cast<std::uint32_t>(position), kept.exponent, kept.lost_nan);
        }
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
