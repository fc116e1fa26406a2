// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Codes of a fixed length: the entropy coder for programs that must decode at the speed of memory.
///
/// Every symbol takes eight bits whatever its probability, so a stream needs no states and no tables: in streams of
/// weights the codes lie in a plane of four bits a weight. A bf16 weight takes 12 bits, where it takes 10.7 with rANS.
///
///     std::uint32_t state = tessera::fixed_coder::start();
///     auto spilled = tessera::fixed_coder::push(state, 'x', {});
///     tessera::fixed_coder::pop(state, {}) == 'x';
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/entropy/rans_coder.hpp>

namespace tessera {
inline namespace v0 {

/// A model of EntropyCoder with states in [2^16, 2^32): the symbols themselves, eight bits each, below a leading one
/// bit.
struct fixed_coder {
  using symbol_type = std::uint8_t;
  using encode_state = std::uint32_t;
  using decode_state = std::uint32_t;
  struct model_type {};
  struct encode_table {};
  struct decode_table {};

  static constexpr int alphabet = 256;
  static constexpr int symbol_bits = 8;                   ///< bits of a symbol, which is two codes of 4 bits
  static constexpr int word_bits = 16;                    ///< bits of a spilled word
  static constexpr std::uint32_t lower_bound = 1u << 16;  ///< the smallest state

  TESSERA_FN static constexpr encode_table make_encode_table(model_type const&) { return {}; }
  TESSERA_FN static constexpr void make_decode_table(model_type const&, decode_table&) {}
  TESSERA_FN static constexpr encode_state start() { return lower_bound; }
  TESSERA_FN static constexpr bool finished(decode_state state) { return state == lower_bound; }

  TESSERA_FN static constexpr spilled_word push(encode_state& state, symbol_type symbol, encode_table const&) {
    spilled_word spilled;
    if (state >= (1u << (32 - symbol_bits))) {
      spilled = {true, static_cast<std::uint16_t>(state)};
      state >>= word_bits;
    }
    state = (state << symbol_bits) | symbol;
    return spilled;
  }

  TESSERA_FN static constexpr symbol_type pop(decode_state& state, decode_table const&) {
    auto const symbol = static_cast<symbol_type>(state & 0xffu);
    state >>= symbol_bits;
    return symbol;
  }

  TESSERA_FN static constexpr bool wants_word(decode_state state) { return state < lower_bound; }
  TESSERA_FN static constexpr void feed(decode_state& state, std::uint16_t word) {
    state = (state << word_bits) | word;
  }
};

}  // namespace v0
}  // namespace tessera
