// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/int4.hpp>
#include <tessera/core/mix_bits.hpp>
#include <tessera/tile/serial/multiply_codes.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Codes of any bits, -128 among them; every third matrix has only the largest magnitudes.
std::vector<std::int8_t> codes(std::uint64_t seed, int count) {
  std::vector<std::int8_t> made(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < made.size(); ++i) {
    auto const random = static_cast<std::int8_t>(mix_bits(seed, i) >> 40 & 0xff);
    made[i] = seed % 3 != 0 ? random : random < 0 ? std::int8_t{-128} : std::int8_t{127};
  }
  return made;
}

std::vector<int4x2> pairs(std::uint64_t seed, int count) {
  std::vector<int4x2> made;
  for (std::int8_t const code : codes(seed, count)) {
    made.push_back({static_cast<std::uint8_t>(code)});
  }
  return made;
}

template <int Rows, int Columns, int Depth>
void check(int a_stride, int b_stride) {
  CAPTURE(Rows, Columns, Depth);
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    auto const a = codes(seed, Rows * a_stride);
    auto const b = codes(seed + 3, Columns * b_stride);
    static std::int32_t sums[Rows][Columns];
    int wrong = 0;
    for (int i = 0; i < Rows * Columns; ++i) {
      sums[i / Columns][i % Columns] = 2147480000 - i;  // sums wrap
    }
    if (!multiply_codes<Depth>(a.data(), a_stride, b.data(), b_stride, sums)) {
      CHECK(sums[0][1] == 2147480000 - 1);
      continue;
    }
    for (int i = 0; i < Rows * Columns; ++i) {
      auto expected = static_cast<std::uint32_t>(2147480000 - i);
      for (int k = 0; k < Depth; ++k) {
        expected += static_cast<std::uint32_t>(a[static_cast<std::size_t>(i / Columns * a_stride + k)] *
                                               b[static_cast<std::size_t>(i % Columns * b_stride + k)]);
      }
      wrong += sums[i / Columns][i % Columns] != static_cast<std::int32_t>(expected);
    }
    CHECK(wrong == 0);
  }
}

}  // namespace

TEST_CASE("products of codes are exact by vectors, and wrap", "[host]") {
  check<4, 16, 32>(32, 32);
  check<8, 32, 64>(80, 65);
  check<64, 64, 128>(144, 144);
}

TEST_CASE("so are products of pairs of 4 bits", "[host]") {
  auto const a = pairs(1, 8 * 64);
  auto const b = pairs(2, 16 * 70);
  std::int32_t sums[8][16] = {};
  if (!multiply_codes<64>(a.data(), 64, b.data(), 70, sums)) {
    return;
  }
  int wrong = 0;
  for (int i = 0; i < 8 * 16; ++i) {
    int expected = 0;
    for (int k = 0; k < 64; ++k) {
      int4x2 const left = a[static_cast<std::size_t>(i / 16 * 64 + k)];
      int4x2 const right = b[static_cast<std::size_t>(i % 16 * 70 + k)];
      expected += low(left) * low(right) + high(left) * high(right);
    }
    wrong += sums[i / 16][i % 16] != expected;
  }
  CHECK(wrong == 0);
}

TEST_CASE("extents that are no whole vectors are left to others", "[host]") {
  std::int8_t const codes[64] = {};
  std::int32_t sums[3][16] = {};
  CHECK(!multiply_codes<32>(codes, 0, codes, 0, sums));
  std::int32_t others[4][16] = {};
  CHECK(!multiply_codes<16>(codes, 0, codes, 0, others));
}
