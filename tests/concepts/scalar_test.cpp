// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/concepts/scalar.hpp>
#include <tessera/core/math.hpp>
#include <tessera/testing/laws/scalar.hpp>

#include "support/catch.hpp"

namespace scalar_test {

/// A user's own storage type: sign and exponent of a float and nothing else, so that every value is a power of two.
struct power_of_two {
  std::uint16_t bits;
};

/// Its traits lack `store`.
struct read_only {
  std::uint16_t bits;
};

/// Not trivially copyable.
struct counted {
  counted(counted const& other) : bits(other.bits) {}
  std::uint16_t bits;
};

/// bfloat16 whose store cuts mantissas off.
struct cut_bfloat16 {
  std::uint16_t bits;
};

/// bfloat16 that has no negative zero, and a NaN of its own.
struct unsigned_zero {
  std::uint16_t bits;
};

/// The traits of a type like bfloat16, whose values are stored by Store.
template <class T, class Store>
struct traits_of_16_bits : tessera::scalar_traits<tessera::bfloat16> {
  static constexpr std::uint16_t to_bits(T value) { return value.bits; }
  static constexpr T from_bits(std::uint16_t pattern) { return {pattern}; }
  static constexpr float load(T value) { return tessera::load(tessera::bfloat16{value.bits}); }
  static constexpr T store(float value) { return {Store::bits(value)}; }
};

struct by_cutting {
  static constexpr std::uint16_t bits(float value) {
    return static_cast<std::uint16_t>(tessera::bit_cast<std::uint32_t>(value) >> 16);
  }
};

struct without_mantissa {
  static constexpr std::uint16_t bits(float value) {
    return static_cast<std::uint16_t>(by_cutting::bits(value) & 0xff80U);
  }
};

struct without_sign_of_zero {
  static constexpr std::uint16_t bits(float value) {
    return value == 0.0F            ? std::uint16_t{0}
           : tessera::is_nan(value) ? std::uint16_t{0xffff}
                                    : tessera::store<tessera::bfloat16>(value).bits;
  }
};

}  // namespace scalar_test

namespace tessera {

template <>
struct scalar_traits<scalar_test::cut_bfloat16>
    : scalar_test::traits_of_16_bits<scalar_test::cut_bfloat16, scalar_test::by_cutting> {};

template <>
struct scalar_traits<scalar_test::unsigned_zero>
    : scalar_test::traits_of_16_bits<scalar_test::unsigned_zero, scalar_test::without_sign_of_zero> {};

template <>
struct scalar_traits<scalar_test::power_of_two>
    : scalar_test::traits_of_16_bits<scalar_test::power_of_two, scalar_test::without_mantissa> {
  static constexpr char const* name() { return "power_of_two"; }
};

template <>
struct scalar_traits<scalar_test::read_only> {
  using bits_type = std::uint16_t;
  using compute_type = float;
  static constexpr int bits = 16;
  static constexpr int exponent_bits = 8;
  static constexpr int mantissa_bits = 7;
  static constexpr int exponent_bias = 127;
  static constexpr bool has_infinity = true;
  static constexpr char const* name() { return "read_only"; }
  static constexpr bits_type to_bits(scalar_test::read_only value) { return value.bits; }
  static constexpr scalar_test::read_only from_bits(bits_type pattern) { return {pattern}; }
  static constexpr float load(scalar_test::read_only) { return 0.0F; }
};

template <>
struct scalar_traits<scalar_test::counted> : scalar_traits<float> {};

}  // namespace tessera

TEST_CASE("the five storage types are Scalars", "[host][scalar]") {
  STATIC_REQUIRE(tessera::Scalar<float>);
  STATIC_REQUIRE(tessera::Scalar<tessera::bfloat16>);
  STATIC_REQUIRE(tessera::Scalar<tessera::float16>);
  STATIC_REQUIRE(tessera::Scalar<tessera::float8_e4m3>);
  STATIC_REQUIRE(tessera::Scalar<tessera::float8_e5m2>);
}

TEST_CASE("a user's type with traits is a Scalar and loads and stores by the same names", "[host][scalar]") {
  STATIC_REQUIRE(tessera::Scalar<scalar_test::power_of_two>);
  CHECK(tessera::load(tessera::store<scalar_test::power_of_two>(5.5F)) == 4.0F);
  CHECK(tessera::to_bits(tessera::from_bits<scalar_test::power_of_two>(0x4080)) == 0x4080);
}

TEST_CASE("what lacks traits, a member or trivial copies is no Scalar", "[host][scalar]") {
  STATIC_REQUIRE_FALSE(tessera::Scalar<int>);
  STATIC_REQUIRE_FALSE(tessera::Scalar<double>);
  STATIC_REQUIRE_FALSE(tessera::Scalar<float&>);
  STATIC_REQUIRE_FALSE(tessera::Scalar<scalar_test::read_only>);
  STATIC_REQUIRE_FALSE(tessera::Scalar<scalar_test::counted>);
}

TEMPLATE_TEST_CASE("storage types keep the laws of Scalars, for all of their patterns", "[host][scalar]", float,
                   tessera::bfloat16, tessera::float16, tessera::float8_e4m3, tessera::float8_e5m2) {
  CHECK(tessera::testing::check_laws<TestType>().text() == "");
}

TEST_CASE("a storage type that breaks a law of Scalars is caught", "[host][scalar]") {
  using tessera::testing::check_laws;
  CHECK(check_laws<scalar_test::power_of_two>().mentions("store undoes load"));
  auto const cut = check_laws<scalar_test::cut_bfloat16>();
  CHECK(cut.mentions("store rounds to the nearest"));
  CHECK(cut.mentions("store rounds a tie to the even one"));
  CHECK_FALSE(cut.mentions("store undoes load"));
  auto const without_sign = check_laws<scalar_test::unsigned_zero>();
  CHECK(without_sign.mentions("store keeps the sign"));
  CHECK(without_sign.mentions("store of a NaN has the bits nan_bits"));
}
