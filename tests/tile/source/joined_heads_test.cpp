// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/testing/laws/tile_source.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/joined_heads.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Heads x tokens x channels of numbers that say where they are, with gaps between tokens and heads.
struct spaced_heads {
  std::int64_t heads;
  std::int64_t tokens;
  std::int64_t channels;
  std::vector<float> values;

  spaced_heads(std::int64_t of_heads, std::int64_t of_tokens, std::int64_t of_channels)
      : heads(of_heads), tokens(of_tokens), channels(of_channels), values(10000, -1.0F) {
    auto const all = writable();
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t token = 0; token < tokens; ++token) {
        for (std::int64_t channel = 0; channel < channels; ++channel) {
          all(head, token, channel) = number_of(head, token, channel);
        }
      }
    }
  }
  static float number_of(std::int64_t head, std::int64_t token, std::int64_t channel) {
    return static_cast<float>(1 + 10000 * head + 100 * token + channel);
  }
  [[nodiscard]] view<float, 3> writable() {
    return {values.data(), {heads, tokens, channels}, {(channels + 3) * (tokens + 1), channels + 3, 1}};
  }
  [[nodiscard]] view<float const, 3> view_of() { return writable(); }
};

/// How many elements of a tile are not those of the heads, or zeros outside.
template <bool IsTurned, int Rows, int Columns, class Source>
int wrong_elements(spaced_heads const& from, Source const& source, std::int64_t first_row, std::int64_t first_column) {
  detail::plain_tile<float, Rows, Columns> tile{};
  source.load(serial_group<32>{}, tile, first_row, first_column);
  int wrong = 0;
  for (int row = 0; row < Rows; ++row) {
    for (int column = 0; column < Columns; ++column) {
      std::int64_t const token = IsTurned ? first_column + column : first_row + row;
      std::int64_t const joined = IsTurned ? first_row + row : first_column + column;
      bool const exists = token >= 0 && token < from.tokens && joined >= 0 && joined < from.heads * from.channels;
      float const expected =
          exists ? spaced_heads::number_of(joined / from.channels, token, joined % from.channels) : 0.0F;
      wrong += tile(row, column) == expected ? 0 : 1;
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("joined and turned heads keep the laws of a tile source, whatever the extents", "[host]") {
  serial_group<32> const group;
  for (std::int64_t const heads : {1, 3}) {
    for (std::int64_t const tokens : {0, 1, 7}) {
      for (std::int64_t const channels : {1, 5}) {
        CAPTURE(heads, tokens, channels);
        spaced_heads keys(heads, tokens, channels);
        joined_heads<float> const joined{keys.view_of()};
        CHECK(joined.rows() == tokens);
        CHECK(joined.columns() == heads * channels);
        CHECK(testing::check_laws(joined, group).text().empty());
        CHECK(testing::check_laws(turned_heads<float>{joined}, group).text().empty());
      }
    }
  }
}

TEST_CASE("tiles of joined heads go on from one head to the next, and are zeros beyond the last", "[host]") {
  spaced_heads keys(3, 9, 6);
  joined_heads<float> const joined{keys.view_of()};
  turned_heads<float> const turned{joined};
  CHECK(turned.rows() == 18);
  CHECK(turned.columns() == 9);
  CHECK(joined(2, 7) == spaced_heads::number_of(1, 2, 1));
  for (std::int64_t const token : {0, 2, 8, -3}) {
    for (std::int64_t const column : {0, 4, 11, 16, -2}) {
      CAPTURE(token, column);
      CHECK(wrong_elements<false, 4, 8>(keys, joined, token, column) == 0);
      CHECK(wrong_elements<true, 8, 4>(keys, turned, column, token) == 0);
      CHECK(wrong_elements<true, 3, 33>(keys, turned, column, token) == 0);
    }
  }
}
