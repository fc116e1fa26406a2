// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/program/paged_cache/page_codes.hpp>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace page_codes_test {

/// A user's quantizer whose codes have so many bits of an integer.
template <class Code, int Bits>
struct rounded {
  using code_type = Code;
  using params_type = float;
  static constexpr int bits = Bits;
  static constexpr int group = 8;
  minimum_maximum_reducer<float> range() const { return {}; }
  params_type fit(interval<float>) const { return 1.0F; }
  code_type encode(float value, params_type) const { return static_cast<code_type>(value); }
  float decode(code_type code, params_type) const { return static_cast<float>(code); }
};

/// Writes 64 codes of random bits from the last octet to the first, and reads them in any order.
template <class Q>
void check_codes() {
  using codes = page_codes<Q>;
  std::vector<typename codes::code_type> given;
  std::vector<unsigned char> packed(static_cast<std::size_t>(codes::bytes_of(64)) + 2, 0xa5);
  for (int octet = 7; octet >= 0; --octet) {
    std::uint32_t fields[8];
    for (int k = 0; k < 8; ++k) {
      auto const random = testing::hash(1, static_cast<std::uint64_t>(8 * octet + k)) >> (64 - codes::bits);
      fields[k] = static_cast<std::uint32_t>(random);
    }
    codes::put(packed.data() + 1, octet, fields);
  }
  int wrong = 0;
  for (int i = 0; i < 64; ++i) {
    auto const random = testing::hash(1, static_cast<std::uint64_t>(i)) >> (64 - codes::bits);
    wrong += codes::to_field(codes::get(packed.data() + 1, i)) != random ? 1 : 0;
  }
  CAPTURE(codes::bits);
  CHECK(wrong == 0);
  CHECK(packed.front() == 0xa5);
  CHECK(packed.back() == 0xa5);
}

template <class Code, int... Bits>
void check_all_bits(std::integer_sequence<int, Bits...>) {
  (check_codes<rounded<Code, Bits + 1>>(), ...);
}

}  // namespace page_codes_test

using namespace page_codes_test;

TEST_CASE("codes of any number of bits are packed without gaps, and nothing beside them is written", "[host]") {
  check_all_bits<std::uint8_t>(std::make_integer_sequence<int, 8>{});
  check_all_bits<std::int8_t>(std::make_integer_sequence<int, 8>{});
  check_all_bits<std::uint16_t>(std::make_integer_sequence<int, 16>{});
  check_all_bits<std::int32_t>(std::make_integer_sequence<int, 32>{});
  check_codes<float8_quantizer<float8_e4m3>>();
  check_codes<scaled_float_quantizer<float16>>();
  static_assert(page_codes<asymmetric_quantizer<3, 32>>::bytes_of(64) == 24);
}

TEST_CASE("bit b of all codes is bit b % 8 of byte b / 8", "[host]") {
  using codes = page_codes<asymmetric_quantizer<3, 32>>;
  unsigned char packed[3];
  codes::put(packed, 0, {1, 2, 3, 4, 5, 6, 7, 0});
  CHECK(int{packed[0]} == (1 | 2 << 3 | (3 & 3) << 6));
  CHECK(int{packed[1]} == (3 >> 2 | 4 << 1 | 5 << 4 | (6 & 1) << 7));
  CHECK(int{packed[2]} == (6 >> 1 | 7 << 2));
}

TEST_CASE("codes with a sign come back with it", "[host]") {
  using codes = page_codes<symmetric_quantizer<4, 64>>;
  unsigned char packed[4];
  std::uint32_t fields[8];
  for (int k = 0; k < 8; ++k) {
    fields[k] = codes::to_field(static_cast<std::int8_t>(2 * k - 7));
  }
  codes::put(packed, 0, fields);
  for (int k = 0; k < 8; ++k) {
    CHECK(int{codes::get(packed, k)} == 2 * k - 7);
  }
}
