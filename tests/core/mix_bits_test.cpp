// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <set>

#include <tessera/core/mix_bits.hpp>

#include "support/catch.hpp"

using tessera::mix_bits;

TEST_CASE("mixed bits are the sequence that splitmix64 gives", "[host]") {
  // The first numbers of the seed 1234567, as other implementations of the published algorithm print them.
  CHECK(mix_bits(1234567, 0) == 6457827717110365317U);
  CHECK(mix_bits(1234567, 1) == 3203168211198807973U);
  CHECK(mix_bits(1234567, 2) == 9817491932198370423U);
  CHECK(mix_bits(1234567, 3) == 4593380528125082431U);
  static_assert(mix_bits(1234567, 4) == 16408922859458223821U);
}

TEST_CASE("numbers of a sequence are all different, and half of their bits are ones", "[host]") {
  std::set<std::uint64_t> seen;
  std::int64_t ones = 0;
  for (std::uint64_t index = 0; index < 10000; ++index) {
    std::uint64_t const bits = mix_bits(~std::uint64_t{0}, index);
    seen.insert(bits);
    for (int bit = 0; bit < 64; ++bit) {
      ones += static_cast<std::int64_t>(bits >> bit & 1U);
    }
  }
  CHECK(seen.size() == 10000);
  CHECK(static_cast<double>(ones) / 640000 == Approx(0.5).margin(0.005));
}
