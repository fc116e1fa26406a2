// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tabled asymmetric numeral systems (tANS): an entropy coder that looks up each of its steps in a table.
///
/// Duda, "Asymmetric numeral systems" (arXiv 1311.2540), section 3. It codes whole exponents, each a symbol of its own
/// of 256, where streams of rans_coder<12> code pairs of 15 neighbouring exponents. It therefore suits weights whose
/// exponents spread widely, such as the second moments of Adam.
///
///     using coder = tessera::tans_coder;
///     coder::model_type model;
///     coder::fit_model(counts, model);                           // 256 counts of symbols
///     auto const encode = coder::make_encode_table(model);
///     coder::decode_table decode;
///     coder::make_decode_table(model, decode);
///     std::uint32_t state = coder::start();
///     auto spilled = coder::push(state, 'x', encode);            // a word to keep if spilled.occurred
///     coder::decode_state reader(state);
///     std::uint32_t symbol = coder::pop(reader, decode);         // 'x'
///     if (coder::wants_word(reader)) coder::feed(reader, spilled.word);
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/entropy/fit_frequencies.hpp>
#include <tessera/entropy/frequency_table.hpp>
#include <tessera/entropy/rans_coder.hpp>

namespace tessera {
inline namespace v0 {

/// A model of EntropyCoder and StreamCoder. A lane is a position in the table, of 4096, and up to 15 bits that are not
/// yet a word: position | number of bits << 12 | bits << 16, the latest bit lowest. A push moves the lowest bits of the
/// position to the lane's bits. From 16 bits on the 16 oldest are spilled. Which symbol has which position is part of
/// the format of streams: slot i of the table, in the order of symbols, is at position 2563 i modulo 4096.
///
/// Cost: two look-ups and no multiplication for push; one look-up for pop. Loss against the entropy of the model: below
/// 0.01 bit a symbol.
struct tans_coder {
  using symbol_type = std::uint8_t;
  using encode_state = std::uint32_t;
  using model_type = frequency_table<12>;

  static constexpr int alphabet = 256;
  static constexpr int table_bits = 12;                          ///< log2 of the number of positions of the table
  static constexpr std::uint32_t table_size = 1u << table_bits;  ///< positions of the table, which all symbols share
  static constexpr int word_bits = 16;                           ///< bits of a spilled word
  static constexpr std::uint8_t stream_id = 3;                   ///< the number that streams know the coder by
  static constexpr int codebook_bytes = 2 * alphabet;            ///< bytes of the frequencies in a stream

  /// The data of a symbol for push. For the position x, counted from 4096 on, (x + bits) >> 16 bits leave the position,
  /// and next[offset + what is left of x] is the next position.
  struct encode_entry {
    std::uint32_t bits;   ///< most bits << 16, less the least position at which that many leave; 0: cannot be coded
    std::int32_t offset;  ///< the slots of all lower symbols, less the symbol's frequency
  };
  /// The data for push of each symbol, and the positions in the order of symbols.
  struct encode_table {
    encode_entry entry[alphabet];    ///< indexed by symbol
    std::uint16_t next[table_size];  ///< each symbol's positions ascend
  };
  /// For each position of the table: symbol | bits that the step reads << 8 | lowest next position << 16.
  struct decode_table {
    std::uint32_t entry[table_size];  ///< indexed by position
    std::uint16_t next[alphabet];     ///< room for counters while the table is made
  };

  /// A lane from which symbols are popped. Between a pop and a feed the lane waits for bits.
  struct decode_state {
    std::uint32_t position;  ///< the position, or the lowest one that the awaited bits can make
    std::uint32_t bits;      ///< bits that are not yet used, the latest lowest
    std::int32_t count;      ///< how many there are
    std::int32_t awaiting;   ///< bits that the position awaits; 0 if it is complete

    /// A lane without a value yet.
    decode_state() = default;
    /// The reader of what was pushed to a lane.
    TESSERA_FN constexpr explicit decode_state(encode_state state)
        : position(state & (table_size - 1)),
          bits(state >> 16),
          count(static_cast<std::int32_t>((state >> table_bits) & 15u)),
          awaiting(0) {}
  };

  /// The model of symbols that were counted so often.
  TESSERA_FN static constexpr void fit_model(std::uint64_t const* counts, model_type& model) {
    fit_frequencies(counts, model);
  }
  /// Writes the frequencies, 16 bits each, little-endian.
  TESSERA_FN static constexpr void store_model(model_type const& model, std::uint8_t* bytes) {
    for (int symbol = 0; symbol < alphabet; ++symbol) {
      bytes[2 * symbol] = static_cast<std::uint8_t>(model.frequency[symbol]);
      bytes[2 * symbol + 1] = static_cast<std::uint8_t>(model.frequency[symbol] >> 8);
    }
  }
  /// Reads the frequencies. Returns false if they do not sum to 4096 or one of them is that alone.
  TESSERA_FN static constexpr bool load_model(std::uint8_t const* bytes, model_type& model) {
    for (int symbol = 0; symbol < alphabet; ++symbol) {
      model.frequency[symbol] = static_cast<std::uint16_t>(bytes[2 * symbol] | (bytes[2 * symbol + 1] << 8));
    }
    return model.is_valid();
  }

  TESSERA_FN static constexpr encode_table make_encode_table(model_type const& model) {
    encode_table table{};
    make_encode_table(model, table);
    return table;
  }
  /// Makes the table for pushing in place. The model must be valid.
  TESSERA_FN static constexpr void make_encode_table(model_type const& model, encode_table& table) {
    std::uint32_t below = 0;
    for (int symbol = 0; symbol < alphabet; ++symbol) {
      table.entry[symbol] = {below, static_cast<std::int32_t>(below)};  // the first slot, and the next one to fill
      below += model.frequency[symbol];
    }
    for (std::uint32_t position = 0; position < table_size; ++position) {
      table.next[table.entry[symbol_of_slot(table, slot_of(position))].offset++] = static_cast<std::uint16_t>(position);
    }
    for (int symbol = 0; symbol < alphabet; ++symbol) {
      table.entry[symbol] = make_encode_entry(model.frequency[symbol], table.entry[symbol].bits);
    }
  }

  /// Makes the table for popping. The model must be valid; writes stay inside the table for any model.
  TESSERA_FN static constexpr void make_decode_table(model_type const& model, decode_table& table) {
    std::uint32_t slot = 0;
    for (std::uint32_t symbol = 0; symbol < alphabet; ++symbol) {
      table.next[symbol] = model.frequency[symbol];
      for (std::uint32_t i = 0; i < model.frequency[symbol] && slot < table_size; ++i) {
        table.entry[position_of(slot++)] = symbol;
      }
    }
    for (std::uint32_t position = 0; position < slot; ++position) {
      std::uint32_t const symbol = table.entry[position] & 0xffu;
      std::uint32_t const left = table.next[symbol]++;
      int const bits = table_bits - log2_floor(left);
      table.entry[position] = symbol | (static_cast<std::uint32_t>(bits) << 8) | (((left << bits) - table_size) << 16);
    }
  }

  TESSERA_FN static constexpr encode_state start() { return 0; }
  TESSERA_FN static constexpr bool finished(decode_state state) {
    return state.position == 0 && state.count == 0 && state.awaiting == 0;
  }
  /// Whether a stream may carry this state.
  TESSERA_FN static constexpr bool is_state(std::uint32_t state) {
    return (state >> 16) >> ((state >> table_bits) & 15u) == 0;
  }
  /// Whether the symbol's frequency is not 0.
  TESSERA_FN static constexpr bool can_code(encode_table const& table, symbol_type symbol) {
    return table.entry[symbol].bits != 0;
  }

  TESSERA_FN static constexpr spilled_word push(encode_state& state, symbol_type symbol, encode_table const& table) {
    encode_entry const entry = table.entry[symbol];
    std::uint32_t const from = table_size + (state & (table_size - 1));
    std::uint32_t const leaving = (from + entry.bits) >> 16;
    std::uint32_t bits = ((state >> 16) << leaving) | (from & ((1u << leaving) - 1));
    std::uint32_t count = ((state >> table_bits) & 15u) + leaving;
    spilled_word spilled;
    if (count >= word_bits) {
      count -= word_bits;
      spilled = {true, static_cast<std::uint16_t>(bits >> count)};
      bits &= (1u << count) - 1;
    }
    std::uint32_t const position = table.next[entry.offset + static_cast<std::int32_t>(from >> leaving)];
    state = position | (count << table_bits) | (bits << 16);
    return spilled;
  }

  TESSERA_FN static constexpr symbol_type pop(decode_state& state, decode_table const& table) {
    std::uint32_t const entry = table.entry[state.position & (table_size - 1)];
    state.position = entry >> 16;
    state.awaiting = static_cast<std::int32_t>((entry >> 8) & 15u);
    take_bits(state);
    return static_cast<symbol_type>(entry & 0xffu);
  }

  TESSERA_FN static constexpr bool wants_word(decode_state state) { return state.awaiting > state.count; }
  TESSERA_FN static constexpr void feed(decode_state& state, std::uint16_t word) {
    state.bits |= static_cast<std::uint32_t>(word) << state.count;
    state.count += word_bits;
    take_bits(state);
  }

 private:
  /// Slots are dealt to positions in steps of this size, so that the positions of a symbol spread over the whole table.
  static constexpr std::uint32_t step = table_size / 2 + table_size / 8 + 3;
  /// The inverse of `step` among the odd numbers below `table_size`.
  TESSERA_FN static constexpr std::uint32_t inverse_step() {
    std::uint32_t inverse = step;
    for (int i = 0; i < 4; ++i) {
      inverse *= 2 - step * inverse;  // doubles the number of right bits, at first three
    }
    return inverse & (table_size - 1);
  }
  TESSERA_FN static constexpr std::uint32_t position_of(std::uint32_t slot) { return (slot * step) & (table_size - 1); }
  TESSERA_FN static constexpr std::uint32_t slot_of(std::uint32_t position) {
    constexpr std::uint32_t inverse = inverse_step();
    return (position * inverse) & (table_size - 1);
  }

  /// The symbol that has a slot: the last one whose first slot is not above it. `bits` are first slots.
  TESSERA_FN static constexpr std::uint32_t symbol_of_slot(encode_table const& table, std::uint32_t slot) {
    std::uint32_t symbol = 0;
    for (std::uint32_t half = alphabet / 2; half > 0; half /= 2) {
      symbol += table.entry[symbol + half].bits <= slot ? half : 0;
    }
    return symbol;
  }

  /// A symbol with 2^k to 2^(k+1) - 1 slots leaves table_bits - k bits, or one less from positions below that many
  /// times its frequency. A symbol that cannot be coded stays where it is, so that no position is outside of the table.
  TESSERA_FN static constexpr encode_entry make_encode_entry(std::uint32_t frequency, std::uint32_t below) {
    if (frequency == 0) {
      return {0, -static_cast<std::int32_t>(table_size)};
    }
    int const most = table_bits - log2_floor(frequency);
    return {(static_cast<std::uint32_t>(most) << 16) - (frequency << most),
            static_cast<std::int32_t>(below) - static_cast<std::int32_t>(frequency)};
  }

  /// Completes the position if all bits that it awaits are there.
  TESSERA_FN static constexpr void take_bits(decode_state& state) {
    if (state.awaiting <= state.count) {
      state.position += state.bits & ((1u << state.awaiting) - 1);
      state.bits >>= state.awaiting;
      state.count -= state.awaiting;
      state.awaiting = 0;
    }
  }
};

}  // namespace v0
}  // namespace tessera
