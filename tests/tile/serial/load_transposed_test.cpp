// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/serial/load_transposed.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Loads a tile whose place is filled with something else, and counts numbers that are not those of the matrix.
template <int Depth, int Columns, class T>
int wrong_numbers(std::int64_t stride) {
  using wide = std::conditional_t<std::is_same_v<T, std::int8_t>, std::int32_t, float>;
  auto const widen = [](T value) {
    if constexpr (std::is_same_v<T, std::int8_t>) {
      return std::int32_t{value};
    } else {
      return load(value);
    }
  };
  std::vector<T> matrix(static_cast<std::size_t>(Columns * stride));
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    float const value = testing::gauss{.sigma = 30}.value(3, i);
    if constexpr (std::is_same_v<T, std::int8_t>) {
      matrix[i] = static_cast<std::int8_t>(minimum(maximum(value, -128.0F), 127.0F));
    } else {
      matrix[i] = store<T>(value);
    }
  }
  if constexpr (!std::is_same_v<T, std::int8_t>) {
    matrix[static_cast<std::size_t>(stride + 1)] = store<T>(std::numeric_limits<float>::quiet_NaN());
    matrix[static_cast<std::size_t>(2 * stride)] = store<T>(-std::numeric_limits<float>::infinity());
    matrix[static_cast<std::size_t>(3 * stride + 2)] = store<T>(-0.0F);
  }
  struct {
    wide before[4];
    wide tile[Depth][Columns];
    wide after[4];
  } place;
  auto* const bytes = reinterpret_cast<unsigned char*>(&place);
  for (std::size_t i = 0; i < sizeof(place); ++i) {
    bytes[i] = 0xa5;
  }
  load_transposed(place.tile, matrix.data(), stride, widen);
  auto const bits = [](wide value) { return bit_cast<std::uint32_t>(value); };
  int wrong = 0;
  for (int column = 0; column < Columns; ++column) {
    for (int k = 0; k < Depth; ++k) {
      wide const expected = widen(matrix[static_cast<std::size_t>(column * stride + k)]);
      wrong += bits(place.tile[k][column]) == bits(expected) ? 0 : 1;
    }
  }
  for (int i = 0; i < 4; ++i) {
    wrong += bits(place.before[i]) == 0xa5a5a5a5U && bits(place.after[i]) == 0xa5a5a5a5U ? 0 : 1;
  }
  return wrong;
}

constexpr int at_compile_time() {
  int const matrix[4 * 5] = {0, 1, 2, 3, -1, 10, 11, 12, 13, -1, 20, 21, 22, 23, -1, 30, 31, 32, 33, -1};
  int tile[4][4] = {};
  load_transposed(tile, matrix, 5, [](int value) { return value; });
  return tile[3][1] * 100 + tile[1][3];
}
static_assert(at_compile_time() == 13 * 100 + 31);

}  // namespace

TEST_CASE("rows become columns, bit for bit, whatever the extents", "[host]") {
  CHECK(wrong_numbers<16, 128, bfloat16>(16) == 0);
  CHECK(wrong_numbers<16, 64, bfloat16>(40) == 0);
  CHECK(wrong_numbers<32, 64, float16>(37) == 0);
  CHECK(wrong_numbers<8, 4, float>(8) == 0);
  CHECK(wrong_numbers<4, 8, float>(11) == 0);
  CHECK(wrong_numbers<32, 64, std::int8_t>(48) == 0);
  CHECK(wrong_numbers<5, 8, bfloat16>(7) == 0);  // not in fours
  CHECK(wrong_numbers<8, 6, bfloat16>(8) == 0);
  CHECK(wrong_numbers<3, 7, float>(3) == 0);
}
