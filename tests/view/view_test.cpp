// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>
#include <tessera/view/view.hpp>

#include "support/catch.hpp"

using namespace tessera;

static_assert(std::is_trivially_copyable_v<view<float, 3>>);
static_assert(std::is_convertible_v<view<float, 2>, view<float const, 2>>);
static_assert(!std::is_convertible_v<view<float const, 2>, view<float, 2>>);
static_assert(!std::is_convertible_v<std::vector<int>&, matrix_view<int>>);

namespace {

/// What std::mdspan offers, as far as a view needs it.
template <class T, std::size_t Rank>
struct mdspan_like {
  T* pointer;
  std::size_t extents[Rank];
  std::size_t strides[Rank];
  static constexpr std::size_t rank() { return Rank; }
  T* data_handle() const { return pointer; }
  std::size_t extent(std::size_t r) const { return extents[r]; }
  std::size_t stride(std::size_t r) const { return strides[r]; }
};

static_assert(!std::is_convertible_v<mdspan_like<int, 3>, matrix_view<int>>);
static_assert(!std::is_convertible_v<mdspan_like<int const, 2>, matrix_view<int>>);

constexpr int last_of_a_three_by_four() {
  int numbers[12]{};
  for (int i = 0; i < 12; ++i) {
    numbers[i] = i;
  }
  matrix_view<int> const m(numbers, {3, 4});
  return m(2, 3) + m[1][0] + m.transposed()[3][1];
}
static_assert(last_of_a_three_by_four() == 11 + 4 + 7);

}  // namespace

TEST_CASE("a row-major view knows its strides", "[host]") {
  std::vector<int> numbers(24);
  view<int, 3> const cube(numbers.data(), {2, 3, 4});
  CHECK(cube.stride(0) == 12);
  CHECK(cube.stride(1) == 4);
  CHECK(cube.stride(2) == 1);
  CHECK(cube.size() == 24);
  CHECK(cube.is_contiguous());
  CHECK(cube.offset(1, 2, 3) == 23);
  CHECK(&cube[1](2, 3) == &numbers[23]);
}

TEST_CASE("a part keeps the strides of the whole", "[host]") {
  std::vector<int> numbers(12);
  matrix_view<int> const m(numbers.data(), {3, 4});
  auto const middle = m.slice(1, 1, 2);
  CHECK(middle.extent(1) == 2);
  CHECK(&middle(2, 1) == &numbers[10]);
  CHECK_FALSE(middle.is_contiguous());
  CHECK(m.slice(0, 1, 2).is_contiguous());
  CHECK(m.slice(0, 1, 1).slice(1, 2, 2).is_contiguous());
  CHECK_FALSE(m.transposed().is_contiguous());
  CHECK(&m.transposed()(3, 1) == &m(1, 3));
}

TEST_CASE("an empty view is contiguous whatever its strides", "[host]") {
  CHECK(array_view<int>().is_empty());
  CHECK(array_view<int>().is_contiguous());
  matrix_view<int> const none(nullptr, {0, 4}, {100, 7});
  CHECK(none.is_empty());
  CHECK(none.is_contiguous());
}

TEST_CASE("offsets past 2^31 elements do not wrap", "[host]") {
  std::int64_t const rows = 100'000;
  std::int64_t const columns = 100'000;
  matrix_view<char> const huge(nullptr, {rows, columns});
  CHECK(huge.size() == 10'000'000'000);
  CHECK(huge.offset(99'999, 99'999) == 9'999'999'999);
  CHECK(huge.offset(99'999u, short{5}) == 9'999'900'005);
  matrix_view<char> const backwards(nullptr, {rows, columns}, {-columns, -1});
  CHECK(backwards.offset(99'999, 99'999) == -9'999'999'999);
}

TEST_CASE("a stride of zero repeats one row", "[host]") {
  std::vector<int> const row{1, 2, 3};
  matrix_view<int const> const repeated(row.data(), {5, 3}, {0, 1});
  CHECK(repeated(4, 2) == 3);
  CHECK_FALSE(repeated.is_contiguous());
}

TEST_CASE("anything that looks like an mdspan converts with its strides", "[host]") {
  std::vector<int> numbers(12);
  mdspan_like<int, 2> const column_major{numbers.data(), {3, 4}, {1, 3}};
  matrix_view<int> const m = column_major;
  CHECK(m.extent(0) == 3);
  CHECK(&m(2, 3) == &numbers[11]);
  CHECK(&m(1, 0) == &numbers[1]);
  matrix_view<int const> const read_only = column_major;
  CHECK(read_only.stride(1) == 3);
}
