// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Pushes and pops the symbols of a block with any EntropyCoder whose lanes are 32-bit numbers and that knows which of
/// them are states, for a group of 32 lanes that share one list of words.
///
///     using coding = tessera::symbol_lanes<tessera::rans_coder<12>, 4>;
///     auto const packed = coding::pack(group, rows, encode_table, symbols, words, most_words);
///     bool const sound = coding::unpack(group, rows, decode_table, states, coded_words, word_count, symbols);
///
/// A row is SymbolsPerLane symbols of each lane. Each lane takes the symbols of all rows in order, as a stack of its
/// own. The words of the block lie in the order in which the lanes want them: after every pop, the lanes that want a
/// word take the next ones, the lowest lane first.
#pragma once

#include <cstdint>

#include <tessera/concepts/entropy_coder.hpp>
#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/little_endian.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

/// Where the words of a packed block are in the scratch, and the lanes' last states.
template <Group G>
struct packed_block {
  per_lane<std::uint32_t, G> state;  ///< the coder's states after all symbols are pushed
  int words = 0;                     ///< the number of words; those that did not fit are only counted
};

/// The lanes of one coder, whose states are 32-bit numbers in the stream.
template <EntropyCoder Coder, int SymbolsPerLane>
struct symbol_lanes {
  static constexpr int lanes = 32;
  /// The type of a symbol.
  using symbol_type = typename Coder::symbol_type;

  /// Pushes all symbols, from the last to the first. The words end at words[most_words + lanes]; those that do not fit
  /// are only counted.
  template <Group G>
  TESSERA_FN static packed_block<G> pack(G const& group, int rows, typename Coder::encode_table const& table,
                                         symbol_type const* symbols, std::uint16_t* words, int most_words) {
    packed_block<G> packed;
    for (int lane : group) {
      packed.state[lane] = Coder::start();
    }
    for (int row = rows - 1; row >= 0; --row) {
      for (int i = SymbolsPerLane - 1; i >= 0; --i) {
        per_lane<bool, G> spills;
        per_lane<std::uint16_t, G> word;
        for (int lane : group) {
          symbol_type const symbol = symbols[(row * lanes + lane) * SymbolsPerLane + i];
          auto const spilled = Coder::push(packed.state[lane], symbol, table);
          spills[lane] = spilled.occurred;
          word[lane] = spilled.word;
        }
        std::uint32_t const mask = ballot(group, spills);
        packed.words += popcount(mask);
        if (packed.words <= most_words) {
          int const first = most_words + lanes - packed.words;
          for (int lane : group) {
            if (spills[lane]) {
              words[first + count_below(group, mask, lane)] = word[lane];
            }
          }
        }
      }
    }
    group.sync();
    return packed;
  }

  /// Pops all symbols. `states` and `words` are bytes of a payload, which may be any. Returns false if the states or
  /// the number of words do not fit the symbols that came out.
  template <Group G>
  TESSERA_FN static bool unpack(G const& group, int rows, typename Coder::decode_table const& table,
                                std::uint8_t const* states, std::uint8_t const* words, int word_count,
                                symbol_type* symbols) {
    per_lane<typename Coder::decode_state, G> state;
    per_lane<bool, G> sound;
    for (int lane : group) {
      auto const stored = load_little_endian<std::uint32_t>(states + 4 * lane);
      state[lane] = typename Coder::decode_state(stored);
      sound[lane] = Coder::is_state(stored);
    }
    int used = 0;
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < SymbolsPerLane; ++i) {
        per_lane<bool, G> wants;
        for (int lane : group) {
          symbols[(row * lanes + lane) * SymbolsPerLane + i] = Coder::pop(state[lane], table);
          wants[lane] = Coder::wants_word(state[lane]);
        }
        std::uint32_t const mask = ballot(group, wants);
        for (int lane : group) {
          int const position = used + count_below(group, mask, lane);
          if (wants[lane]) {
            Coder::feed(state[lane], position < word_count ? load_little_endian<std::uint16_t>(words + 2 * position)
                                                           : std::uint16_t{0});
          }
        }
        used += popcount(mask);
      }
    }
    for (int lane : group) {
      sound[lane] = sound[lane] && Coder::finished(state[lane]);
    }
    group.sync();
    return all(group, sound) && used == word_count;
  }
};

}  // namespace v0
}  // namespace tessera
