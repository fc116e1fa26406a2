// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
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

#if defined(TESSERA_HAS_VECTORS)

/// A number of 8 significant bits, near 2^exponent; every 16th is zero.
float short_number(std::uint64_t seed, int i, int exponent) {
  std::uint64_t const random = mix_bits(seed, static_cast<std::uint64_t>(i));
  auto const significand = static_cast<float>(random % 16 == 0 ? 0U : 128U + (random >> 8) % 128U);
  return std::ldexp((random >> 32) % 2 == 0 ? significand : -significand,
                    exponent - 7 + static_cast<int>(random >> 40) % 3);
}

/// Products of short numbers of such exponents have the same bits at all levels, fused where none is rounded.
/// Returns whether they are found to be exact.
bool check_levels(int a_exponent, int b_exponent) {
  constexpr int rows = 8;
  constexpr int columns = 64;
  constexpr int depth = 16;
  using matrices_type = matrices<float, rows, columns, depth>;
  matrices_type given(1, false);
  for (int i = 0; i < rows * depth; ++i) {
    given.a[i / depth][i % depth] = short_number(2, i, a_exponent);
  }
  for (int i = 0; i < depth * columns; ++i) {
    given.b[i / columns][i % columns] = short_number(3, i, b_exponent);
  }
  for (auto& row : given.sums) {
    for (float& sum : row) {
      sum = std::ldexp(sum, a_exponent + b_exponent - 12);
    }
  }
  matrices_type expected = given;
  detail::add_products_portably(expected.a, expected.b, expected.sums);
  bool all_are_exact = true;
  for (int k = 0; k < depth; ++k) {
    for (int i = 0; i < rows * columns; ++i) {
      float const product = given.a[i / columns][k] * given.b[k][i % columns];
      all_are_exact = all_are_exact && double{product} == double{given.a[i / columns][k]} * given.b[k][i % columns];
    }
  }
  CAPTURE(a_exponent, b_exponent);
  detail::product_extents const extents{rows, columns, depth};
  matrices_type chosen = given;
  add_products<rows, columns, depth>(chosen.a, chosen.b, chosen.sums);
  CHECK(chosen.is_as(expected));
  auto const check_level = [&](auto const& multiply) {
    matrices_type found = given;
    multiply(&found.a[0][0], &found.b[0][0], &found.sums[0][0], extents);
    CHECK(found.is_as(expected));
  };
  bool are_exact = false;
  if (detail::has_vectors()) {
    are_exact = detail::products_are_exact_avx2(&given.a[0][0], &given.b[0][0], extents);
    CHECK((all_are_exact || !are_exact));
    if (are_exact) {
      check_level(detail::add_exact_products_avx2);
    }
  }
  if (detail::has_wide_vectors()) {
    CHECK(detail::products_are_exact_avx512(&given.a[0][0], &given.b[0][0], extents) == are_exact);
    check_level(detail::add_products_avx512<false>);
    if (are_exact) {
      check_level(detail::add_products_avx512<true>);
    }
  }
  return are_exact;
}

#endif

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

#if defined(TESSERA_HAS_VECTORS)

TEST_CASE("products are fused where all of them are exact, and all levels have the same bits", "[host]") {
  bool const has = detail::has_vectors();
  CHECK(check_levels(0, 0) == has);
  CHECK(check_levels(-60, -66) == has);
  CHECK(check_levels(61, 60) == has);
  CHECK(!check_levels(-60, -67));
  CHECK(!check_levels(60, 68));
  CHECK(!check_levels(-75, -70));  // products are rounded, and are denormal
  CHECK(!check_levels(-140, 3));   // numbers are denormal
  CHECK(!check_levels(-80, -80));  // products vanish
}

TEST_CASE("a number of fp32 is enough for no product to be fused", "[host]") {
  static float a[4][16] = {};
  static float b[16][64] = {};
  a[3][15] = 1.0F + 0x1p-12F;
  detail::product_extents const extents{4, 64, 16};
  if (detail::has_vectors()) {
    CHECK(!detail::products_are_exact_avx2(&a[0][0], &b[0][0], extents));
    a[3][15] = 1.0F + 0x1p-11F;
    CHECK(detail::products_are_exact_avx2(&a[0][0], &b[0][0], extents));
  }
}

#endif
