// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <initializer_list>

#include <tessera/core/fast_divisor.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using tessera::fast_divisor;

namespace {

void check_divisor(std::uint32_t divisor, std::uint64_t seed) {
  fast_divisor const by = fast_divisor::of(divisor);
  bool is_right = true;
  auto const check = [&](std::uint32_t number) {
    is_right = is_right && by.quotient(number) == number / divisor && by.remainder(number) == number % divisor &&
               static_cast<std::int32_t>(number) / by == static_cast<std::int32_t>(number / divisor);
  };
  for (std::uint32_t number : {0U, 1U, divisor - 1, divisor, divisor + 1, 0x7ffffffeU, 0x7fffffffU}) {
    check(number & 0x7fffffffU);
  }
  for (std::uint64_t i = 0; i < 300; ++i) {
    auto const number = static_cast<std::uint32_t>(tessera::testing::hash(seed, i) & 0x7fffffffU);
    check(number);
    check(number / divisor * divisor);                                            // a multiple
    check(number / divisor * divisor == 0 ? 0 : number / divisor * divisor - 1);  // and what is before it
  }
  CAPTURE(divisor);
  CHECK(is_right);
}

}  // namespace

TEST_CASE("quotients by a known divisor are those of a division", "[host]") {
  for (std::uint32_t divisor = 1; divisor < 3000; ++divisor) {
    check_divisor(divisor, divisor);
  }
  for (std::uint64_t i = 0; i < 3000; ++i) {
    auto const any = static_cast<std::uint32_t>(tessera::testing::hash(5, i) >> (33 + i % 31));
    check_divisor(any == 0 ? 1 : any, i);
  }
  check_divisor(0x80000000U, 1);
  check_divisor(0x7fffffffU, 2);
}

TEST_CASE("a count of nothing divides as one does", "[host]") {
  CHECK(fast_divisor::of_count(0).value() == 1);
  CHECK(fast_divisor::of_count(-3).value() == 1);
  CHECK(0x7fffffff / fast_divisor::of_count(0) == 0x7fffffff);
  CHECK(17 / fast_divisor{} == 17);
  CHECK(fast_divisor::of_count(7).value() == 7);
  CHECK(0x7fffffff / fast_divisor::of_count(0x7fffffff) == 1);
}
