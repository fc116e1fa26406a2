// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/view/array_view.hpp>

#include "support/catch.hpp"

using namespace tessera;

static_assert(std::is_convertible_v<std::vector<int>&, array_view<int>>);
static_assert(std::is_convertible_v<std::vector<int> const&, array_view<int const>>);
static_assert(!std::is_convertible_v<std::vector<int> const&, array_view<int>>);
static_assert(!std::is_convertible_v<std::vector<int>, array_view<int>>);
static_assert(std::is_convertible_v<std::vector<int>, array_view<int const>>);
static_assert(!std::is_convertible_v<std::vector<int>&, array_view<long>>);

TEST_CASE("a container becomes a list of its elements", "[host]") {
  std::vector<int> numbers{1, 2, 3};
  array_view<int> const all = numbers;
  CHECK(all.size() == 3);
  CHECK(all.is_contiguous());
  all[1] = 7;
  CHECK(numbers[1] == 7);
  CHECK(all(2) == 3);
  std::array<int, 2> const fixed{4, 5};
  array_view<int const> const few = fixed;
  CHECK(few[1] == 5);
}

TEST_CASE("as_array finds the element type of a container and keeps a view as it is", "[host]") {
  std::vector<float> numbers{1, 2, 3, 4};
  std::vector<float> const& fixed_numbers = numbers;
  STATIC_REQUIRE(std::is_same_v<decltype(as_array(numbers)), array_view<float>>);
  STATIC_REQUIRE(std::is_same_v<decltype(as_array(fixed_numbers)), array_view<float const>>);
  CHECK(as_array(numbers).data == numbers.data());
  CHECK(as_array(numbers).size() == 4);
  array_view<float> const every_other(numbers.data() + 1, {2}, {2});
  auto const same = as_array(every_other);
  CHECK(same.stride(0) == 2);
  CHECK(same[1] == 4.0F);
  CHECK(as_array(std::vector<float>{}).is_empty());
}

TEST_CASE("a list may run backwards and skip elements", "[host]") {
  std::vector<std::int32_t> numbers{10, 11, 12, 13, 14, 15, 16};
  array_view<std::int32_t> const backwards(numbers.data() + 6, {3}, {-3});
  CHECK(backwards[0] == 16);
  CHECK(backwards[1] == 13);
  CHECK(backwards[2] == 10);
  CHECK_FALSE(backwards.is_contiguous());
  backwards[1] = -1;
  CHECK(numbers[3] == -1);
}
