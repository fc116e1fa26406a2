// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/core/with_constant.hpp>

#include "support/catch.hpp"

using tessera::each_constant;
using tessera::with_constant;

namespace {

template <int Size>
struct sized {
  static constexpr int size = Size;
};

constexpr int sum_below_five() {
  int sum = 0;
  each_constant<5>([&](auto number) { sum += sized<number>::size; });
  return sum;
}
static_assert(sum_below_five() == 10);

}  // namespace

TEST_CASE("a number becomes the constant that it is, and any other one the last", "[host]") {
  std::vector<int> found;
  for (std::int64_t const number : {64, 128, 256, 65, 0, -1}) {
    with_constant<64, 128, 256>(number, [&](auto constant) { found.push_back(constant.value); });
  }
  CHECK((found == std::vector<int>{64, 128, 256, 256, 256, 256}));
  CHECK(with_constant<64, 128>((std::int64_t{1} << 32) + 64, [](auto constant) { return constant.value; }) == 128);
  CHECK(with_constant<3>(7, [](auto constant) { return sizeof(char[constant.value]); }) == 3);
}

TEST_CASE("each constant is used once, in order, and none of none", "[host]") {
  std::vector<int> used;
  each_constant<4>([&](auto number) { used.push_back(number); });
  each_constant<0>([&](auto number) { used.push_back(number); });
  CHECK(used == std::vector<int>{0, 1, 2, 3});
}
