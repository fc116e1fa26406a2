// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <type_traits>

#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/tile_mma.hpp>
#include <tessera/tile/gemm_tile.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// An operand from a whole number.
template <class T>
struct make_operand {
  T operator()(double number) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(number);
    } else {
      return store<T>(static_cast<float>(number));
    }
  }
};

template <class T, class Shape>
void check_tile() {
  using tile = gemm_tile<T, Shape, serial_group<32>>;
  static_assert(TileMma<tile>);
  using make = make_operand<typename tile::operand_type>;
  CHECK(testing::check_laws<tile>(serial_group<32>{}, make{}).text().empty());
}

}  // namespace

TEST_CASE("serial tiles of every operand keep the laws of a tile product", "[host]") {
  check_tile<float, shape<16, 8, 8>>();
  check_tile<tf32, shape<16, 8, 8>>();
  check_tile<bfloat16, shape<16, 8, 16>>();
  check_tile<float16, shape<5, 3, 7>>();
  check_tile<float8_e4m3, shape<16, 8, 32>>();
  check_tile<float8_e5m2, shape<1, 1, 1>>();
  check_tile<std::int8_t, shape<16, 8, 32>>();
}

namespace {

/// Pairs whose other value is zero: a product of them is one of numbers.
template <bool IsHigh>
struct make_pair_of {
  int4x2 operator()(double number) const {
    return IsHigh ? pack_int4(0, static_cast<int>(number)) : pack_int4(static_cast<int>(number), 0);
  }
};

}  // namespace

TEST_CASE("a serial tile of pairs of 4-bit integers multiplies first values and second ones", "[host]") {
  using tile = gemm_tile<int4x2, shape<16, 8, 32>, serial_group<32>>;
  static_assert(TileMma<tile>);
  CHECK(testing::check_laws<tile>(serial_group<32>{}, make_pair_of<false>{}).text().empty());
  CHECK(testing::check_laws<tile>(serial_group<32>{}, make_pair_of<true>{}).text().empty());
  int4x2 a[16 * 32];
  int4x2 b[8 * 32];
  auto const random_pair = [](std::uint64_t seed, int i) {
    return int4x2{static_cast<std::uint8_t>(testing::hash(seed, static_cast<std::uint64_t>(i)))};
  };
  for (int i = 0; i < 16 * 32; ++i) {
    a[i] = random_pair(3, i);
    b[i / 2] = random_pair(4, i);
  }
  tile::a_tile of_a;
  tile::b_tile of_b;
  tile::sum_tile sums;
  tile::load_a({}, of_a, a, 32);
  tile::load_b_transposed({}, of_b, b, 32);
  tile::clear({}, sums);
  tile::multiply({}, of_a, of_b, sums);
  int wrong = 0;
  tile::each({}, sums, [&](int row, int column, std::int32_t sum) {
    int expected = 0;
    for (int k = 0; k < 32; ++k) {
      int4x2 const x = a[row * 32 + k];
      int4x2 const y = b[column * 32 + k];
      expected += low(x) * low(y) + high(x) * high(y);
    }
    wrong += sum == expected ? 0 : 1;
  });
  CHECK(wrong == 0);
}

TEST_CASE("a tile of weights can be loaded from rows along the depth", "[host]") {
  using tile = gemm_tile<float, shape<2, 3, 4>>;
  float across[4 * 5];
  float along[3 * 6];
  for (int k = 0; k < 4; ++k) {
    for (int column = 0; column < 3; ++column) {
      across[5 * k + column] = along[6 * column + k] = static_cast<float>(10 * k + column);
    }
  }
  tile::b_tile a;
  tile::b_tile b;
  tile::load_b({}, a, across, 5);
  tile::load_b_transposed({}, b, along, 6);
  for (int k = 0; k < 4; ++k) {
    for (int column = 0; column < 3; ++column) {
      CHECK(a.values[k][column] == b.values[k][column]);
    }
  }
}

TEST_CASE("the sums of two tiles are visited in pairs, and may both be changed", "[host]") {
  using tile = gemm_tile<float, shape<2, 3, 4>>;
  tile::sum_tile sums;
  tile::sum_tile totals;
  tile::each({}, sums, [](int row, int column, float& sum) { sum = static_cast<float>(10 * row + column); });
  tile::clear({}, totals);
  for (int times = 1; times <= 2; ++times) {
    tile::each_pair({}, sums, totals, [](int row, int column, float& sum, float& total) {
      CHECK(sum == static_cast<float>(10 * row + column));
      total += 2 * sum;
    });
  }
  tile::each_pair({}, sums, totals, [](int, int, float& sum, float) { sum = 7; });
  CHECK(sums.values[1][2] == 7);
  CHECK(totals.values[1][2] == 48);
  CHECK(totals.values[0][0] == 0);
}

TEST_CASE("the product sees the upper 19 bits of a tf32 operand", "[host]") {
  using operand = gemm_operand<tf32>;
  CHECK(operand::widen(1.0F + 0x1p-10F) == 1.0F + 0x1p-10F);
  CHECK(operand::widen(1.0F + 0x1p-11F) == 1.0F);
  CHECK(operand::widen(-1.0F - 0x1.8p-10F) == -1.0F - 0x1p-10F);
}

TEST_CASE("sums of integers wrap", "[host]") {
  CHECK(gemm_operand<std::int8_t>::multiply_add(-128, -128, 0x7fffffff) == -0x7fffffff - 1 + 16383);
  CHECK(gemm_operand<int4x2>::multiply_add({-8, -8}, {-8, -8}, 0x7fffffff) == -0x7fffffff - 1 + 127);
}
