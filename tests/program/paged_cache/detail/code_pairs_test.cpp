// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/core/float16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/paged_cache/detail/code_pairs.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Checks pairs of a lane with random codes, and with the largest ones.
template <int Bits>
void check_pairs() {
  using pairs_type = code_pairs<Bits>;
  for (std::uint64_t round = 0; round < 50; ++round) {
    lane_codes codes;
    auto const code = [&](int field, int half) {
      auto const bits = static_cast<std::uint32_t>(testing::hash(round, static_cast<std::uint64_t>(2 * field + half)));
      return (round == 0 ? 0xffffffffU : bits) & ((1U << Bits) - 1U);
    };
    for (int field = 0; field < lane_codes::fields; ++field) {
      codes.put(Bits, field, 0, code(field, 0));
      codes.put(Bits, field, 1, code(field, 1));
    }
    std::uint32_t words[pairs_type::words];
    for (int word = 0; word < pairs_type::words; ++word) {
      words[word] = codes.words[word];
    }
    for (int tile = 0; tile < 4; ++tile) {
      for (int a = 0; a < 4; ++a) {
        std::uint32_t const pair = pairs_type::of(words, tile, a);
        float const unit = a % 2 == 0 ? 0x1p-24F : static_cast<float>(1 << pairs_type::upper) * 0x1p-24F;
        for (int half = 0; half < 2; ++half) {
          float const found = load(float16{static_cast<std::uint16_t>(pair >> 16 * half)});
          CHECK(found == unit * static_cast<float>(code(4 * tile + a, half)));
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("pairs are codes in units of their rows", "[host]") {
  check_pairs<2>();
  check_pairs<3>();
  check_pairs<4>();
  check_pairs<8>();
}
