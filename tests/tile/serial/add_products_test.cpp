// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <tessera/core/cpu_features.hpp>
#include <tessera/core/mix_bits.hpp>
#include <tessera/tile/serial/add_products.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// A number of a matrix: floats of any size, among them zeros, infinities and NaN if `odd`; integers of 16 bits.
template <class T>
T number(std::uint64_t seed, int i, bool odd) {
  std::uint64_t const random = mix_bits(seed, static_cast<std::uint64_t>(i));
  if constexpr (std::is_same_v<T, float>) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    float const specials[] = {0.0F,
                              -0.0F,
                              infinity,
                              -infinity,
                              std::numeric_limits<float>::quiet_NaN(),
                              std::numeric_limits<float>::denorm_min()};
    if (odd && random % 40 == 0) {
      return specials[random / 64 % 6];
    }
    return static_cast<float>(static_cast<std::int64_t>(random >> 20) - (std::int64_t{1} << 43)) * 0x1p-40F;
  } else {
    return odd && random % 4 == 0 ? T{-32768} : static_cast<T>(random >> 40 & 0xffff) - 32768;
  }
}

template <class T, int Rows, int Columns, int Depth>
struct matrices {
  T a[Rows][Depth];
  T b[Depth][Columns];
  T sums[Rows][Columns];

  matrices(std::uint64_t seed, bool odd) {
    int i = 0;
    for (auto& row : a) {
      for (T& value : row) {
        value = number<T>(seed, i++, odd);
      }
    }
    for (auto& row : b) {
      for (T& value : row) {
        value = number<T>(seed, i++, odd);
      }
    }
    for (auto& row : sums) {
      for (T& value : row) {
        value = number<T>(seed, i++, odd);
      }
    }
  }
  /// Whether sums have the same bits. Any NaN is as good as another.
  [[nodiscard]] bool is_as(matrices const& other) const {
    for (int row = 0; row < Rows; ++row) {
      for (int column = 0; column < Columns; ++column) {
        T const own = sums[row][column];
        T const its = other.sums[row][column];
        bool const are_nan = own != own && its != its;
        if (!are_nan && std::memcmp(&own, &its, sizeof(T)) != 0) {
          return false;
        }
      }
    }
    return true;
  }
};

template <class T, int Rows, int Columns, int Depth>
void check() {
  CAPTURE(Rows, Columns, Depth);
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    matrices<T, Rows, Columns, Depth> expected(seed, seed % 2 == 0);
    matrices<T, Rows, Columns, Depth> found(seed, seed % 2 == 0);
    for (int row = 0; row < Rows; ++row) {
      for (int column = 0; column < Columns; ++column) {
        for (int k = 0; k < Depth; ++k) {
          if constexpr (std::is_same_v<T, float>) {
            float const product = expected.a[row][k] * expected.b[k][column];
            expected.sums[row][column] += product;
          } else {
            std::int64_t const product = std::int64_t{expected.a[row][k]} * expected.b[k][column];
            expected.sums[row][column] = static_cast<std::int32_t>(
                static_cast<std::uint32_t>(expected.sums[row][column]) + static_cast<std::uint32_t>(product));
          }
        }
      }
    }
    add_products<Rows, Columns, Depth>(found.a, found.b, found.sums);
    CHECK(found.is_as(expected));
    matrices<T, Rows, Columns, Depth> portable(seed, seed % 2 == 0);
    detail::add_products_portably(portable.a, portable.b, portable.sums);
    CHECK(portable.is_as(expected));
  }
}

}  // namespace

TEST_CASE("products of floats have the same bits with the widest vectors as one by one", "[host]") {
  check<float, 1, 1, 1>();
  check<float, 4, 8, 3>();
  check<float, 3, 16, 5>();
  check<float, 4, 16, 1>();
  check<float, 5, 48, 16>();
  check<float, 64, 64, 16>();
  check<float, 128, 128, 16>();
}

TEST_CASE("products of integers are exact with the widest vectors, and wrap", "[host]") {
  check<std::int32_t, 1, 1, 1>();
  check<std::int32_t, 3, 16, 5>();
  check<std::int32_t, 3, 16, 6>();
  check<std::int32_t, 5, 48, 32>();
  check<std::int32_t, 64, 64, 32>();
}
