// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/concepts/scalar.hpp>

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

}  // namespace scalar_test

namespace tessera {

template <>
struct scalar_traits<scalar_test::power_of_two> {
  using bits_type = std::uint16_t;
  using compute_type = float;
  static constexpr int bits = 16;
  static constexpr int exponent_bits = 8;
  static constexpr int mantissa_bits = 7;
  static constexpr int exponent_bias = 127;
  static constexpr bool has_infinity = true;
  static constexpr char const* name() { return "power_of_two"; }
  static constexpr bits_type to_bits(scalar_test::power_of_two value) { return value.bits; }
  static constexpr scalar_test::power_of_two from_bits(bits_type pattern) { return {pattern}; }
  static constexpr float load(scalar_test::power_of_two value) {
    return bit_cast<float>(std::uint32_t{value.bits} << 16);
  }
  static constexpr scalar_test::power_of_two store(float value) {
    return {static_cast<bits_type>((bit_cast<std::uint32_t>(value) >> 16) & 0xff80U)};
  }
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
