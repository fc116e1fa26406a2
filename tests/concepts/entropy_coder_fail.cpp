// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: an EntropyCoder has static push\(encode_state&, symbol_type, encode_table const&\)
#include <cstdint>

#include <tessera/neuzip.hpp>

#include "algorithm/weights/own_coders.hpp"

namespace {

/// A coder whose push does not say whether it spilled a word.
struct own_coder : tessera_test::six_bit_coder {
#if defined(TESSERA_FAIL)
  static std::uint16_t push(encode_state& state, symbol_type symbol, encode_table) {
    return push_bits(state, symbol & 63U).word;
  }
#endif
};

}  // namespace

std::int64_t bytes_of(std::int64_t count) {
  using codec =
      tessera::compressed_weights<tessera::exponent_split<tessera::bfloat16>, own_coder, tessera::keep_mantissa<7>>;
  return codec::largest_bytes(codec::spec(count));
}
