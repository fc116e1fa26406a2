// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/concepts/entropy_coder.hpp>
#include <tessera/testing/laws/entropy_coder.hpp>

#include "support/catch.hpp"

using tessera::EntropyCoder;
using tessera::testing::check_laws;

namespace entropy_coder_test {

struct nothing {};

/// Four bits for each symbol: a lane is a stack of nibbles, the lowest one on top, of which four are spilled when a
/// fifth one comes. The topmost set bit marks the bottom of the stack.
struct nibble_coder {
  using symbol_type = std::uint8_t;
  using model_type = nothing;
  using encode_table = nothing;
  using decode_table = nothing;
  using encode_state = std::uint32_t;
  using decode_state = std::uint32_t;
  struct spilled {
    bool occurred = false;
    std::uint16_t word = 0;
  };
  static constexpr int alphabet = 16;

  static constexpr encode_table make_encode_table(model_type) { return {}; }
  static constexpr void make_decode_table(model_type, decode_table&) {}
  static constexpr encode_state start() { return lowest; }
  static constexpr spilled push(encode_state& state, symbol_type symbol, encode_table) {
    spilled out;
    if (state >= (lowest << 12)) {
      out = {true, static_cast<std::uint16_t>(state)};
      state >>= 16;
    }
    state = (state << 4) | symbol;
    return out;
  }
  static constexpr symbol_type pop(decode_state& state, decode_table) {
    auto const symbol = static_cast<symbol_type>(state & 15U);
    state >>= 4;
    return symbol;
  }
  static constexpr bool wants_word(decode_state state) { return state < lowest; }
  static constexpr void feed(decode_state& state, std::uint16_t word) { state = (state << 16) | word; }
  static constexpr bool finished(decode_state state) { return state == lowest; }

  static constexpr std::uint32_t lowest = 1U << 12;
};

/// Codes symbol 7 as 6.
struct losing_a_symbol : nibble_coder {
  static constexpr spilled push(encode_state& state, symbol_type symbol, encode_table table) {
    return nibble_coder::push(state, symbol == 7 ? symbol_type{6} : symbol, table);
  }
};

struct losing_a_word : nibble_coder {
  static constexpr spilled push(encode_state& state, symbol_type symbol, encode_table table) {
    spilled const out = nibble_coder::push(state, symbol, table);
    return (out.word & 7U) == 3U ? spilled{} : out;
  }
};

struct spilling_too_much : nibble_coder {
  static constexpr spilled push(encode_state& state, symbol_type symbol, encode_table table) {
    spilled const out = nibble_coder::push(state, symbol, table);
    return {true, out.word};
  }
};

struct never_finished : nibble_coder {
  static constexpr bool finished(decode_state state) { return state == 0; }
};

struct signed_symbols : nibble_coder {
  using symbol_type = int;
};

static_assert(EntropyCoder<nibble_coder>);
static_assert(!EntropyCoder<signed_symbols>);
static_assert(!EntropyCoder<nothing>);

std::vector<std::uint8_t> const symbols{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

}  // namespace entropy_coder_test

using namespace entropy_coder_test;

TEST_CASE("a user's own entropy coder keeps the laws", "[host]") {
  auto const report = check_laws<nibble_coder>({}, symbols);
  INFO(report.text());
  CHECK(report.is_empty());
}

TEST_CASE("an entropy coder that loses a symbol is caught", "[host]") {
  CHECK(check_laws<losing_a_symbol>({}, symbols).mentions("pop inverts push in reverse order"));
  CHECK(check_laws<losing_a_symbol>({}, {0, 1, 2}).is_empty());
}

TEST_CASE("an entropy coder that drops a word is caught", "[host]") {
  CHECK(check_laws<losing_a_word>({}, symbols).mentions("a reader wants no more words than were spilled"));
}

TEST_CASE("an entropy coder that spills words which no reader wants is caught", "[host]") {
  CHECK(check_laws<spilling_too_much>({}, symbols).mentions("every spilled word is fed"));
}

TEST_CASE("an entropy coder that does not know its end is caught", "[host]") {
  CHECK(check_laws<never_finished>({}, {3}).mentions("finished() holds after the whole message: in a message of 0"));
}
