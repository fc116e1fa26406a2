// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/program/paged_cache/detail/narrow_codes.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Packs random codes of a lane, and each bit of each code alone, and compares them with the words of the format.
template <int Bits>
void check_packing() {
  constexpr std::uint64_t singles = 2 * lane_codes::fields * Bits;
  for (std::uint64_t round = 0; round < singles + 50; ++round) {
    lane_codes four;
    lane_codes expected;
    for (int field = 0; field < lane_codes::fields; ++field) {
      for (int half = 0; half < 2; ++half) {
        auto const at = static_cast<std::uint64_t>(2 * field + half);
        std::uint32_t const single = round / Bits == at ? 1U << round % Bits : 0U;
        auto const random = static_cast<std::uint32_t>(testing::hash(round, at)) & ((1U << Bits) - 1U);
        std::uint32_t const code = round < singles ? single : random;
        four.put(4, field, half, code);
        expected.put(Bits, field, half, code);
      }
    }
    std::uint32_t const from[4] = {four.words[0], four.words[1], four.words[2], four.words[3]};
    std::uint32_t words[Bits];
    narrow_codes<Bits>(from, words);
    for (int word = 0; word < Bits; ++word) {
      CHECK(words[word] == expected.words[word]);
    }
  }
}

}  // namespace

TEST_CASE("codes of 2 and 3 bits are packed from words of 4 bits as pages have them") {
  check_packing<2>();
  check_packing<3>();
}
