// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/core/precision.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/widen_exactly.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Code number i of a word, as an arithmetic shift finds it.
int code_in(std::uint32_t word, int bits, int i) {
  int const unsigned_code = static_cast<int>((word >> (bits * i)) & ((1U << bits) - 1U));
  return unsigned_code >= 1 << (bits - 1) ? unsigned_code - (1 << bits) : unsigned_code;
}

template <class Value, int Bits>
int wrong_pairs(std::uint32_t word) {
  constexpr int count = 16 / Bits;
  std::uint32_t pairs[count];
  widen_exactly<Value, Bits>(serial_group<1>{}, word, pairs);
  int wrong = 0;
  for (int i = 0; i < count; ++i) {
    wrong += load(from_bits<Value>(static_cast<std::uint16_t>(pairs[i]))) != static_cast<float>(code_in(word, Bits, i));
    wrong += load(from_bits<Value>(static_cast<std::uint16_t>(pairs[i] >> 16))) !=
             static_cast<float>(code_in(word, Bits, i + count));
  }
  return wrong;
}

}  // namespace

TEST_CASE("codes of 4 and of 8 bits are widened exactly, in pairs half a word apart", "[host]") {
  int wrong = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    auto const word = static_cast<std::uint32_t>(i < 256 ? i * 0x01010101U : testing::hash(1, i));
    wrong += wrong_pairs<bfloat16, 4>(word) + wrong_pairs<float16, 4>(word);
    wrong += wrong_pairs<bfloat16, 8>(word) + wrong_pairs<float16, 8>(word);
  }
  CHECK(wrong == 0);
}
