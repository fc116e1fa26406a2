// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/testing/laws/tile_source.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/async_source.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/source/fetched_source.hpp>
#include <tessera/tile/staged_tile.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(i + 1);
  }
  return values;
}

}  // namespace

TEST_CASE("a dense matrix of any strides keeps the laws of a tile source", "[host]") {
  auto const values = numbers(100);
  serial_group<32> const group;
  matrix_view<float const> const rows(values.data(), {7, 9});
  CHECK(testing::check_laws(dense<float>{rows}, group).text().empty());
  CHECK(testing::check_laws(dense<float>{rows.transposed()}, group).text().empty());
  CHECK(testing::check_laws(dense<float>{matrix_view<float const>(values.data() + 99, {3, 5}, {-20, -2})}, group)
            .text()
            .empty());
  CHECK(testing::check_laws(dense<float>{matrix_view<float const>(values.data(), {0, 5})}, group).text().empty());
}

TEST_CASE("gathered rows keep the laws of a tile source, and rows that do not exist are zeros", "[host]") {
  auto const values = numbers(63);
  std::vector<std::int64_t> const order{6, 0, 0, -1, 7, 3};
  serial_group<32> const group;
  gathered<float> const source{matrix_view<float const>(values.data(), {7, 9}), order};
  CHECK(testing::check_laws(source, group).text().empty());
  detail::plain_tile<float, 6, 2> tile{};
  source.load(group, tile, 0, 1);
  CHECK(tile(0, 0) == 56.0F);
  CHECK(tile(2, 1) == 3.0F);
  CHECK(tile(3, 0) == 0.0F);
  CHECK(tile(4, 0) == 0.0F);
  CHECK(tile(5, 1) == 30.0F);
}

TEST_CASE("a staged tile is loaded alike from aligned rows and from others", "[host]") {
  std::vector<float> storage(8 * 24 + 8, -1.0F);
  serial_group<32> const group;
  for (int const offset : {0, 1}) {
    auto* const first =
        reinterpret_cast<float*>(align_up(reinterpret_cast<std::uintptr_t>(storage.data()), 16)) + offset;
    matrix_view<float> const matrix(first, {7, 20}, {24, 1});
    for (int row = 0; row < 7; ++row) {
      for (int column = 0; column < 20; ++column) {
        matrix(row, column) = static_cast<float>(100 * row + column);
      }
    }
    for (std::int64_t const from : {std::int64_t{0}, std::int64_t{4}, std::int64_t{12}, std::int64_t{-4}}) {
      staged_tile<float, 9, 16> tile;
      dense<float>{matrix}.load(group, tile, 1, from);
      bool right = true;
      for (int row = 0; row < 9; ++row) {
        for (int column = 0; column < 16; ++column) {
          std::int64_t const at = from + column;
          bool const inside = row + 1 < 7 && at >= 0 && at < 20;
          right = right && tile(row, column) == (inside ? static_cast<float>(100 * (row + 1) + at) : 0.0F);
        }
      }
      CAPTURE(offset, from);
      CHECK(right);
    }
  }
}

TEST_CASE("a tile is loaded alike from rows and from columns that are contiguous", "[host]") {
  std::vector<bfloat16> halves(40 * 48);
  std::vector<float> floats(halves.size());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i] = {static_cast<std::uint16_t>(i + 1)};
    floats[i] = static_cast<float>(i + 1);
  }
  auto const check = [](auto const& values, auto tile) {
    using element = typename decltype(tile)::value_type;
    matrix_view<element const> const matrix(values.data(), {38, 44}, {1, 40});
    for (std::int64_t const first_row : {-3, 0, 8, 22, 30}) {
      for (std::int64_t const first_column : {-5, 0, 20, 36}) {
        dense<element>{matrix}.load(serial_group<32>{}, tile, first_row, first_column);
        int wrong = 0;
        for (int i = 0; i < 16 * 24; ++i) {
          std::int64_t const row = first_row + i / 24;
          std::int64_t const column = first_column + i % 24;
          bool const is_inside = row >= 0 && row < 38 && column >= 0 && column < 44;
          wrong += tile(i / 24, i % 24) != (is_inside ? matrix(row, column) : element{});
        }
        CAPTURE(first_row, first_column);
        CHECK(wrong == 0);
      }
    }
  };
  check(halves, staged_tile<bfloat16, 16, 24>{});
  check(floats, staged_tile<float, 16, 24>{});
}

TEST_CASE("a tile that ends behind the matrix is loaded in chunks, too", "[host]") {
  std::vector<float> storage(8 * 24 + 4, -1.0F);
  auto* const first = reinterpret_cast<float*>(align_up(reinterpret_cast<std::uintptr_t>(storage.data()), 16));
  matrix_view<float> const matrix(first, {7, 20}, {24, 1});
  for (int row = 0; row < 7; ++row) {
    for (int column = 0; column < 20; ++column) {
      matrix(row, column) = static_cast<float>(100 * row + column);
    }
  }
  std::vector<std::int64_t> const order{0, 1, 2, 3, 4, 5, 6};
  serial_group<32> const group;
  REQUIRE(dense_chunks<float>::suits(matrix));
  CHECK_FALSE(dense_chunks<float>::suits({first + 1, {7, 16}, {24, 1}}));  // rows begin elsewhere
  CHECK_FALSE(dense_chunks<float>::suits({first, {7, 18}, {24, 1}}));      // rows end within a chunk
  CHECK_FALSE(dense_chunks<float>::suits({first, {7, 20}, {22, 1}}));
  for (std::int64_t const from : {std::int64_t{0}, std::int64_t{8}, std::int64_t{16}, std::int64_t{20}}) {
    staged_tile<float, 9, 16> tile;
    staged_tile<float, 9, 16> listed;
    staged_tile<float, 9, 16> known;
    dense<float>{matrix}.begin_load(group, tile, 1, from);
    gathered<float>{matrix, order}.begin_load(group, listed, 1, from);
    dense_chunks<float>{matrix}.begin_load(group, known, 1, from);
    static_assert(FetchedSource<dense_chunks<float>, serial_group<32>, staged_tile<float, 9, 16>>);
    staged_tile<float, 9, 16> fetched;
    dense_chunks<float>::fetched<serial_group<32>, staged_tile<float, 9, 16>> next;
    dense_chunks<float>{matrix}.fetch(group, next, 1, from);
    dense_chunks<float>{matrix}.store(group, next, fetched);
    bool right = true;
    for (int row = 0; row < 9; ++row) {
      for (int column = 0; column < 16; ++column) {
        float const expected =
            row + 1 < 7 && from + column < 20 ? static_cast<float>(100 * (row + 1) + from + column) : 0.0F;
        for (auto const* const loaded : {&tile, &listed, &known, &fetched}) {
          right = right && (*loaded)(row, column) == expected;
        }
      }
    }
    CAPTURE(from);
    CHECK(right);
  }
}

namespace {

/// Checks tiles that are loaded in words of so many bytes, from a matrix of 7 x 19.
template <int Bytes, class Group>
void check_words(Group const& group, std::int64_t stride) {
  CAPTURE(Bytes, Group::size, stride);
  std::vector<bfloat16> storage(static_cast<std::size_t>(8 * stride + 8), store<bfloat16>(-1.0F));
  auto* const first = reinterpret_cast<bfloat16*>(align_up(reinterpret_cast<std::uintptr_t>(storage.data()), 16));
  matrix_view<bfloat16> const matrix(first, {7, 19}, {stride, 1});
  for (int row = 0; row < 7; ++row) {
    for (int column = 0; column < 19; ++column) {
      matrix(row, column) = store<bfloat16>(static_cast<float>(20 * row + column));
    }
  }
  std::vector<std::int64_t> const order{0, 1, 2, 3, 4, 5, 6};
  dense<bfloat16> const rows{matrix};
  gathered<bfloat16> const list{matrix, order};
  REQUIRE(rows.has_words<Bytes>());
  REQUIRE(list.has_words<Bytes>());
  static_assert(AsyncSource<dense_words<bfloat16, Bytes>, Group, staged_tile<bfloat16, 9, 16>>);
  static_assert(AsyncSource<gathered_words<bfloat16, Bytes>, Group, staged_tile<bfloat16, 9, 16>>);
  for (std::int64_t const from : {0, 4, 8, 16, 20, 32}) {
    staged_tile<bfloat16, 9, 16> tile;
    staged_tile<bfloat16, 9, 16> listed;
    rows.in_words<Bytes>().begin_load(group, tile, 1, from);
    list.in_words<Bytes>().begin_load(group, listed, 1, from);
    bool right = true;
    for (int row = 0; row < 9; ++row) {
      for (int column = 0; column < 16; ++column) {
        bool const is_inside = row + 1 < 7 && from + column < 19;
        float const expected = is_inside ? static_cast<float>(20 * (row + 1) + from + column) : 0.0F;
        right = right && load(tile(row, column)) == expected && load(listed(row, column)) == expected;
      }
    }
    CAPTURE(from);
    CHECK(right);
  }
}

}  // namespace

TEST_CASE("rows that begin at multiples of 4 or 8 bytes are loaded in words, the last of which may be a part",
          "[host]") {
  check_words<4>(serial_group<32>{}, 22);
  check_words<4>(serial_group<64>{}, 20);
  check_words<8>(serial_group<16>{}, 20);
  check_words<8>(serial_group<128>{}, 24);
  alignas(8) bfloat16 values[64] = {};
  CHECK_FALSE(dense_words<bfloat16, 4>::suits({values, {3, 5}, {7, 1}}));
  CHECK_FALSE(dense_words<bfloat16, 4>::suits({values, {3, 5}, {1, 8}}));
  CHECK_FALSE(dense_words<bfloat16, 4>::suits({values + 1, {3, 5}, {8, 1}}));
  CHECK_FALSE(dense_words<bfloat16, 8>::suits({values, {3, 5}, {6, 1}}));
}

TEST_CASE("listed rows are loaded in words, and rows that do not exist are zeros", "[host]") {
  auto const values = numbers(8 * 8);
  serial_group<32> const group;
  std::vector<std::int64_t> const order{6, 0, -1, 8, 0, 3};
  gathered<float> const source{matrix_view<float const>(values.data(), {7, 6}, {8, 1}), order};
  CHECK(testing::check_laws(source.in_words<4>(), group).text().empty());
  staged_tile<float, 8, 8> plain;
  staged_tile<float, 8, 8> tile;
  source.load(group, plain, 1, 0);
  source.in_words<4>().begin_load(group, tile, 1, 0);
  bool is_same = true;
  for (int row = 0; row < 8; ++row) {
    for (int column = 0; column < 8; ++column) {
      is_same = is_same && tile(row, column) == plain(row, column);
    }
  }
  CHECK(is_same);
  CHECK(tile(4, 5) == 30.0F);
  CHECK(tile(1, 0) == 0.0F);
}

TEST_CASE("sources are used in the widest words that both have", "[host]") {
  alignas(8) bfloat16 values[64] = {};
  auto const width = [&](std::int64_t a_stride, std::int64_t b_stride) {
    std::size_t found = 0;
    bool const is_called =
        with_words(dense<bfloat16>{{values, {3, 5}, {a_stride, 1}}}, dense<bfloat16>{{values, {4, 5}, {b_stride, 1}}},
                   [&](auto const& a, auto const&) { found = sizeof(bfloat16) * a.size; });
    return is_called ? found : 0;
  };
  CHECK(width(8, 12) == 8);
  CHECK(width(8, 6) == 4);
  CHECK(width(6, 8) == 4);
  CHECK(width(8, 7) == 0);
}
