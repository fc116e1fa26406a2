// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/mix_bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/tile/codes/value_slot.hpp>
#include <tessera/tile/serial/add_value_codes.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Codes of all finite numbers.
std::vector<float8_e4m3> codes(std::uint64_t seed, int count) {
  std::vector<float8_e4m3> made(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < made.size(); ++i) {
    auto const random = static_cast<std::uint8_t>(mix_bits(seed, i) >> 40);
    made[i] = {static_cast<std::uint8_t>((random & 0x7fU) == 0x7fU ? 0 : random)};
  }
  return made;
}

template <int Rows, int Tokens, int Channels>
void check(int stride) {
  CAPTURE(Rows, Tokens, Channels);
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    auto const values = codes(seed, Channels * stride);
    static float weights[Rows][Tokens];
    static float sums[Rows][Channels];
    static float expected[Rows][Channels];
    for (int i = 0; i < Rows * Tokens; ++i) {
      auto const random = static_cast<std::uint16_t>(mix_bits(seed + 9, static_cast<std::uint64_t>(i)) >> 40);
      weights[i / Tokens][i % Tokens] = load(float16{static_cast<std::uint16_t>(random & 0xbbffU)});  // below 2
    }
    for (int i = 0; i < Rows * Channels; ++i) {
      expected[i / Channels][i % Channels] = 0.001F * static_cast<float>(i);
      for (int token = 0; token < Tokens; ++token) {
        float const product = weights[i / Channels][token] *
                              load(values[static_cast<std::size_t>(i % Channels * stride + value_slot(token))]);
        expected[i / Channels][i % Channels] += product;
      }
      sums[i / Channels][i % Channels] = 0.001F * static_cast<float>(i);
    }
    if (add_value_codes(weights, values.data(), stride, sums)) {
      CHECK(std::memcmp(sums, expected, sizeof sums) == 0);
    } else {
      CHECK(sums[0][1] == 0.001F);
    }
  }
}

}  // namespace

TEST_CASE("sums of weights times codes have the bits of products and sums rounded one by one", "[host]") {
  check<4, 32, 16>(32);
  check<8, 64, 32>(65);
  check<64, 64, 64>(80);
}

TEST_CASE("a code of NaN makes the sums of its channel NaN", "[host]") {
  static float const weights[4][32] = {};
  static float8_e4m3 codes[16 * 32] = {};
  static float sums[4][16] = {};
  codes[3 * 32 + 5] = {0xff};
  if (add_value_codes(weights, codes, 32, sums)) {
    for (auto const& row : sums) {
      CHECK(row[2] == 0.0F);
      CHECK(row[3] != row[3]);
    }
  }
}
