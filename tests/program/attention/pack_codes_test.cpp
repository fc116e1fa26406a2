// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/attention/pack_codes.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Packs the codes of heads x tokens x channels, and widens them again; how many bits and codes are wrong.
template <class Executor>
int wrong_codes(Executor const& exec, std::int64_t heads, std::int64_t tokens, std::int64_t channels) {
  auto const count = static_cast<std::size_t>(heads * tokens * channels);
  std::vector<std::int8_t> codes(count);
  for (std::size_t i = 0; i < count; ++i) {
    codes[i] = static_cast<std::int8_t>(static_cast<int>(testing::hash(1, i) % 16) - 8);
  }
  std::vector<int4x2> packed(count / 2, int4x2{0x5a});
  std::vector<std::int8_t> again(count, 99);
  head_view<int4x2> const pairs(packed.data(), {1, heads, tokens, channels / 2});
  pack_codes const pack{head_view<std::int8_t const>(codes.data(), {1, heads, tokens, channels}), pairs};
  exec.run(pack, pack.groups());
  widen_codes const widen{pairs, head_view<std::int8_t>(again.data(), {1, heads, tokens, channels})};
  exec.run(widen, widen.groups());
  int wrong = 0;
  for (std::size_t i = 0; i < count / 2; ++i) {
    // Two's complement, the first code of a pair in the low bits.
    int const expected = (codes[2 * i] & 15) | (codes[2 * i + 1] & 15) << 4;
    wrong += packed[i].bits == expected ? 0 : 1;
  }
  for (std::size_t i = 0; i < count; ++i) {
    wrong += again[i] == codes[i] ? 0 : 1;
  }
  return wrong;
}

}  // namespace

TEST_CASE("codes are packed two to a byte and widened to what they were", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {0, 1, 7, 127, 128, 129}) {
    for (std::int64_t const channels : {2, 64}) {
      CAPTURE(tokens, channels);
      CHECK(wrong_codes(exec, 3, tokens, channels) == 0);
    }
  }
  CHECK(wrong_codes(exec, 1, 8191, 2) == 0);  // one pair less than a group takes, as many, and one more
  CHECK(wrong_codes(exec, 1, 8192, 2) == 0);
  CHECK(wrong_codes(exec, 1, 8193, 2) == 0);
}

TEST_CASE("packing and widening codes keeps the rules for programs", "[host]") {
  CHECK(wrong_codes(testing::adversary{.seed = 5}, 2, 67, 64) == 0);
}
