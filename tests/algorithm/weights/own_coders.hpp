// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Entropy coders of a user for streams of weights.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera_test {

/// A lane as a stack of symbols of the same number of bits, the lowest one on top. The topmost set bit marks the bottom
/// of the stack; a push spills the lower half of a lane that it would overflow.
template <int Bits>
struct stacked_symbols {
  using symbol_type = std::uint8_t;
  using encode_state = std::uint32_t;
  using decode_state = std::uint32_t;
  struct spilled {
    bool occurred = false;
    std::uint16_t word = 0;
  };

  TESSERA_FN static constexpr encode_state start() { return 1U << 16; }
  TESSERA_FN static constexpr bool finished(decode_state state) { return state == start(); }
  TESSERA_FN static constexpr bool is_state(std::uint32_t state) { return state >= start(); }
  TESSERA_FN static constexpr bool wants_word(decode_state state) { return state < start(); }
  TESSERA_FN static constexpr void feed(decode_state& state, std::uint16_t word) { state = (state << 16) | word; }
  TESSERA_FN static constexpr spilled push_bits(encode_state& state, std::uint32_t bits) {
    spilled out;
    if (state >= 1U << (32 - Bits)) {
      out = {true, static_cast<std::uint16_t>(state)};
      state >>= 16;
    }
    state = (state << Bits) | bits;
    return out;
  }
  TESSERA_FN static constexpr std::uint32_t pop_bits(decode_state& state) {
    std::uint32_t const bits = state & ((1U << Bits) - 1);
    state >>= Bits;
    return bits;
  }
};

/// Six bits for each of 64 neighbouring exponents, of which the lowest is the whole model.
struct six_bit_coder : stacked_symbols<6> {
  struct model_type {
    std::uint8_t lowest;
  };
  using encode_table = model_type;
  using decode_table = model_type;
  static constexpr int alphabet = 256;
  static constexpr std::uint8_t stream_id = 200;
  static constexpr int codebook_bytes = 1;
  static constexpr int neighbours = 64;

  /// The most frequent exponent is in the middle.
  TESSERA_FN static constexpr void fit_model(std::uint64_t const* counts, model_type& model) {
    int frequent = 0;
    for (int i = 0; i < alphabet; ++i) {
      frequent = counts[i] > counts[frequent] ? i : frequent;
    }
    int const lowest = frequent - neighbours / 2;
    int const last = alphabet - neighbours;
    model.lowest = static_cast<std::uint8_t>(lowest < 0 ? 0 : lowest > last ? last : lowest);
  }
  TESSERA_FN static constexpr void store_model(model_type model, std::uint8_t* bytes) { bytes[0] = model.lowest; }
  TESSERA_FN static constexpr bool load_model(std::uint8_t const* bytes, model_type& model) {
    model.lowest = bytes[0];
    return bytes[0] <= alphabet - neighbours;
  }
  TESSERA_FN static constexpr encode_table make_encode_table(model_type model) { return model; }
  TESSERA_FN static constexpr void make_encode_table(model_type model, encode_table& table) { table = model; }
  TESSERA_FN static constexpr void make_decode_table(model_type model, decode_table& table) { table = model; }
  TESSERA_FN static constexpr bool can_code(encode_table table, symbol_type symbol) {
    return symbol >= table.lowest && symbol < table.lowest + neighbours;
  }
  TESSERA_FN static constexpr spilled push(encode_state& state, symbol_type symbol, encode_table table) {
    return push_bits(state, (static_cast<std::uint32_t>(symbol) - table.lowest) & 63U);
  }
  TESSERA_FN static constexpr symbol_type pop(decode_state& state, decode_table table) {
    return static_cast<symbol_type>(table.lowest + pop_bits(state));
  }
};

/// Four bits for each of sixteen exponents, as e4m3 has, with nothing to store.
struct four_bit_coder : stacked_symbols<4> {
  struct model_type {};
  using encode_table = model_type;
  using decode_table = model_type;
  static constexpr int alphabet = 16;
  static constexpr std::uint8_t stream_id = 255;
  static constexpr int codebook_bytes = 0;

  TESSERA_FN static constexpr void fit_model(std::uint64_t const*, model_type&) {}
  TESSERA_FN static constexpr void store_model(model_type, std::uint8_t*) {}
  TESSERA_FN static constexpr bool load_model(std::uint8_t const*, model_type&) { return true; }
  TESSERA_FN static constexpr encode_table make_encode_table(model_type) { return {}; }
  TESSERA_FN static constexpr void make_encode_table(model_type, encode_table&) {}
  TESSERA_FN static constexpr void make_decode_table(model_type, decode_table&) {}
  TESSERA_FN static constexpr bool can_code(encode_table, symbol_type) { return true; }
  TESSERA_FN static constexpr spilled push(encode_state& state, symbol_type symbol, encode_table) {
    return push_bits(state, symbol);
  }
  TESSERA_FN static constexpr symbol_type pop(decode_state& state, decode_table) {
    return static_cast<symbol_type>(pop_bits(state));
  }
};

}  // namespace tessera_test
