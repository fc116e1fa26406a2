// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstring>
#include <limits>

#include <tessera/core/math.hpp>
#include <tessera/core/mix_bits.hpp>
#include <tessera/program/attention/channel_statistics.hpp>
#include <tessera/program/attention/detail/row_sums.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("sums and ranges of channels are those of their values, one after the other", "[host]") {
  float const odd[] = {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 0.0F, -0.0F};
  static detail::row_sums<4> sums;
  sums.clear();
  static float expected[4][64];
  static channel_summary ranges[64];
  for (auto& range : ranges) {
    range = channel_summary::of_nothing();
  }
  int done = 0;
  for (int token = 0; token < 50; ++token) {
    float row[64];
    for (int i = 0; i < 64; ++i) {
      std::uint64_t const random = mix_bits(static_cast<std::uint64_t>(token), static_cast<std::uint64_t>(i));
      row[i] = i > 20 && random % 50 == 0 ? odd[random / 64 % 5] : static_cast<float>(random >> 40) - 8e6F;
      expected[token % 4][i] += is_finite(row[i]) ? row[i] : 0.0F;
      ranges[i].widen(row[i]);
    }
    done = sums.add(row, 61, token % 4);
  }
  CHECK((done == 56 || (done == 0 && !detail::has_vectors())));
  for (int i = 0; i < done; ++i) {
    CHECK(std::memcmp(&sums.lowest[i], &ranges[i].lowest, sizeof(float)) == 0);
    CHECK(std::memcmp(&sums.highest[i], &ranges[i].highest, sizeof(float)) == 0);
    for (int part = 0; part < 4; ++part) {
      CHECK(sums.sums[part][i] == expected[part][i]);
    }
  }
  CHECK(sums.sums[0][60] == 0.0F);
}
