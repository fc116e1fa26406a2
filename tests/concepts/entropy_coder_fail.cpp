// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: an EntropyCoder has static push\(encode_state&, symbol_type, encode_table const&\)
#include <cstdint>

#include <tessera/concepts/entropy_coder.hpp>

struct identity_coder {
  using symbol_type = std::uint8_t;
  struct model_type {};
  struct encode_table {};
  struct decode_table {};
  struct encode_state {};
  using decode_state = encode_state;
  struct spilled {
    bool occurred;
    std::uint16_t word;
  };
  static constexpr int alphabet = 256;
  static encode_table make_encode_table(model_type const&) { return {}; }
  static void make_decode_table(model_type const&, decode_table&) {}
  static encode_state start() { return {}; }
#if defined(TESSERA_FAIL)
  static std::uint16_t push(encode_state&, symbol_type symbol, encode_table const&) {
    return symbol;
  }
#else
  static spilled push(encode_state&, symbol_type symbol, encode_table const&) {
    return {true, symbol};
  }
#endif
  static symbol_type pop(decode_state&, decode_table const&) {
    return 0;
  }
  static bool wants_word(decode_state) {
    return false;
  }
  static void feed(decode_state&, std::uint16_t) {}
  static bool finished(decode_state) {
    return true;
  }
};

template <tessera::EntropyCoder C>
struct stream {};

stream<identity_coder> bytes;
