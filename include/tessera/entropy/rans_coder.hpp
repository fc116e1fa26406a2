// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Range asymmetric numeral systems (rANS): an entropy coder whose whole state is one 32-bit number.
///
/// Duda, "Asymmetric numeral systems" (arXiv 1311.2540). States lie in [2^15, 2^31) and exchange 16 bits at a time, so
/// that a symbol moves at most one word in or out. So 32 lanes can share one stream of words, in which each lane finds
/// its words by counting.
///
///     using coder = tessera::rans_coder<12>;
///     coder::model_type model;
///     tessera::fit_frequencies(counts, model);                  // 256 counts of symbols: fit_frequencies.hpp
///     auto const encode = coder::make_encode_table(model);
///     coder::decode_table decode;
///     coder::make_decode_table(model, decode);
///     std::uint32_t state = coder::start();
///     auto spilled = coder::push(state, 'x', encode);           // a word to keep if spilled.occurred
///     std::uint32_t symbol = coder::pop(state, decode);         // 'x'
///     if (coder::wants_word(state)) coder::feed(state, spilled.word);
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/entropy/frequency_table.hpp>

namespace tessera {
inline namespace v0 {

/// A word that a coder hands out when its state would grow too large.
struct spilled_word {
  bool occurred = false;   ///< whether there is a word
  std::uint16_t word = 0;  ///< the word that was spilled
};

/// A model of EntropyCoder. Laws: pop undoes push, in reverse order; words are fed in the reverse of the order in which
/// they were spilled; a state from which all pushed symbols were popped equals start().
///
/// Cost: one multiplication for push; one multiplication and one table look-up for pop. Loss against the entropy of the
/// model: below 0.001 bit a symbol at 12 bits.
template <int ProbabilityBits>
struct rans_coder {
  static_assert(ProbabilityBits >= 8 && ProbabilityBits <= 12, "tessera: rans_coder has 8 to 12 probability bits");

  using symbol_type = std::uint8_t;
  using encode_state = std::uint32_t;
  using decode_state = std::uint32_t;
  using model_type = frequency_table<ProbabilityBits>;

  static constexpr int alphabet = 256;
  static constexpr int probability_bits = ProbabilityBits;       ///< log2 of the number of slots
  static constexpr std::uint32_t slots = 1u << ProbabilityBits;  ///< slots of the table, which all symbols share
  /// The smallest state between symbols; also the state of the empty message.
  static constexpr std::uint32_t lower_bound = 1u << 15;
  static constexpr int word_bits = 16;  ///< bits of a spilled word
  /// A state spills before a push if it is at least frequency << spill_shift.
  static constexpr int spill_shift = 15 + word_bits - ProbabilityBits;

  /// The data of a symbol for push: state + bias + quotient * complement is the next state.
  struct encode_entry {
    std::uint32_t reciprocal;  ///< quotient = high half of state * reciprocal, shifted right
    std::uint32_t packed;  ///< shift (4 bits) | bias (13 bits) << 5 | complement << spill_shift | cannot be coded << 31
  };
  /// The data for push of each symbol.
  struct encode_table {
    encode_entry entry[alphabet];  ///< indexed by symbol
  };
  /// For each slot: frequency << 20 | (slot - cumulative) << 8 | symbol.
  struct decode_table {
    std::uint32_t entry[slots];  ///< indexed by slot: the low probability_bits of a state
  };

  /// Makes a division by the frequency f a multiplication. With s = ceil(log2 f) - 1 and r = ceil(2^(32+s) / f) the
  /// quotient (x * r) >> (32 + s) is exact for x < f * 2^19, which renormalisation guarantees, because then x * (r f -
  /// 2^(32+s)) < 2^(32+s). f = 1 has no such r in 32 bits: r = 2^32 - 1 gives x - 1, and the bias makes up for it.
  TESSERA_FN static constexpr encode_entry make_encode_entry(std::uint32_t frequency, std::uint32_t cumulative) {
    if (frequency == 0) {
      return {0, 1u << 31};
    }
    std::uint32_t const complement = (slots - frequency) << spill_shift;
    if (frequency == 1) {
      return {0xffffffffu, ((cumulative + slots - 1) << 5) | complement};
    }
    int const shift = log2_ceil(frequency) - 1;
    std::uint64_t const scaled = std::uint64_t{1} << (32 + shift);
    auto const reciprocal = static_cast<std::uint32_t>((scaled + frequency - 1) / frequency);
    return {reciprocal, static_cast<std::uint32_t>(shift) | (cumulative << 5) | complement};
  }

  /// An entry of the table for pop; `offset` is the slot's number among its symbol's slots.
  TESSERA_FN static constexpr std::uint32_t decode_entry(std::uint32_t frequency, std::uint32_t offset,
                                                         std::uint32_t symbol) {
    return (frequency << 20) | (offset << 8) | symbol;
  }

  TESSERA_FN static constexpr encode_table make_encode_table(model_type const& model) {
    encode_table table{};
    std::uint32_t cumulative = 0;
    for (int symbol = 0; symbol < alphabet; ++symbol) {
      table.entry[symbol] = make_encode_entry(model.frequency[symbol], cumulative);
      cumulative += model.frequency[symbol];
    }
    return table;
  }

  /// The model must be valid (model.is_valid()); writes stay inside the table for any model.
  TESSERA_FN static constexpr void make_decode_table(model_type const& model, decode_table& table) {
    std::uint32_t slot = 0;
    for (std::uint32_t symbol = 0; symbol < alphabet; ++symbol) {
      for (std::uint32_t offset = 0; offset < model.frequency[symbol] && slot < slots; ++offset) {
        table.entry[slot++] = decode_entry(model.frequency[symbol], offset, symbol);
      }
    }
  }

  TESSERA_FN static constexpr encode_state start() { return lower_bound; }
  TESSERA_FN static constexpr bool finished(decode_state state) { return state == lower_bound; }
  /// Whether a stream may carry this state.
  TESSERA_FN static constexpr bool is_state(std::uint32_t state) { return state >= lower_bound && state < (1u << 31); }

  /// Whether the symbol's frequency is not 0.
  TESSERA_FN static constexpr bool can_code(encode_entry entry) { return (entry.packed >> 31) == 0; }

  TESSERA_FN static constexpr spilled_word push(encode_state& state, encode_entry entry) {
    // Tests state >= frequency << spill_shift by means of the complement.
    spilled_word spilled;
    if (((state + (entry.packed & (~0u << spill_shift))) >> 31) != 0) {
      spilled = {true, static_cast<std::uint16_t>(state)};
      state >>= word_bits;
    }
    std::uint32_t const quotient = multiply_high(state, entry.reciprocal) >> (entry.packed & 31u);
    state += ((entry.packed >> 5) & 0x1fffu) + quotient * (entry.packed >> spill_shift);
    return spilled;
  }

  TESSERA_FN static constexpr spilled_word push(encode_state& state, symbol_type symbol, encode_table const& table) {
    return push(state, table.entry[symbol]);
  }

  TESSERA_FN static constexpr symbol_type pop(decode_state& state, decode_table const& table) {
    std::uint32_t const entry = table.entry[state & (slots - 1)];
    state = (entry >> 20) * (state >> probability_bits) + ((entry >> 8) & 0xfffu);
    return static_cast<symbol_type>(entry & 0xffu);
  }

  TESSERA_FN static constexpr bool wants_word(decode_state state) { return state < lower_bound; }
  TESSERA_FN static constexpr void feed(decode_state& state, std::uint16_t word) {
    state = (state << word_bits) | word;
  }
};

}  // namespace v0
}  // namespace tessera
