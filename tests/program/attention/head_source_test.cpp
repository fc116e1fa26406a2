// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/program/attention/head_source.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

struct negated {
  template <class Stored>
  TESSERA_FN float operator()(Stored const& stored, std::int64_t sequence, std::int64_t head, std::int64_t token,
                              std::int64_t channel) const {
    return -stored(sequence, head, token, channel);
  }
};

}  // namespace

TEST_CASE("a source of heads gives what is stored, or what a function makes of it", "[host]") {
  std::vector<bfloat16> values;
  for (int i = 0; i < 2 * 3 * 4 * 5; ++i) {
    values.push_back(store<bfloat16>(static_cast<float>(i)));
  }
  head_view<bfloat16 const> const heads(values.data(), {2, 3, 4, 5});
  head_source<bfloat16> const plain{{heads}};
  CHECK(plain(1, 2, 3, 4) == 119.0F);
  CHECK(plain.heads() == 3);
  CHECK(plain.length(1) == 4);
  head_source<bfloat16, negated> const mapped{{heads}};
  CHECK(mapped(1, 0, 2, 1) == -71.0F);
  float row[3] = {};
  plain.read(1, 2, 3, 2, 3, row);
  CHECK((row[0] == 117.0F && row[1] == 118.0F && row[2] == 119.0F));
  mapped.read(1, 0, 2, 0, 2, row);
  CHECK((row[0] == -70.0F && row[1] == -71.0F && row[2] == 119.0F));
  head_view<bfloat16 const> const by_channels(values.data(), {2, 3, 5, 4}, {60, 20, 1, 5});
  head_source<bfloat16>{{by_channels}}.read(0, 1, 4, 1, 3, row);
  CHECK((row[0] == 29.0F && row[1] == 34.0F && row[2] == 39.0F));
  std::vector<std::int32_t> const lengths{-7, 99};
  head_source<bfloat16> const cut{{heads, lengths}};
  CHECK(cut.length(0) == 0);
  CHECK(cut.length(1) == 4);
}

TEST_CASE("sequences one behind the other are found by their starts, and nothing beyond them", "[host]") {
  std::vector<float> const values{0, 1, 2, 3, 4, 5, 6};
  std::vector<std::int32_t> const starts{0, 3, std::numeric_limits<std::int32_t>::max()};
  head_view<float const> const heads(values.data(), {3, 1, 4, 1}, {0, 0, 1, 1});
  head_source<float> const packed{{heads, {}, {starts, 7}}};
  CHECK(packed(0, 0, 2, 0) == 2.0F);
  CHECK(packed(1, 0, 3, 0) == 6.0F);
  CHECK(packed(2, 0, 0, 0) == 0.0F);
  float channel = -1.0F;
  packed.read(2, 0, 0, 0, 1, &channel);
  CHECK(channel == 0.0F);
  sequence_starts const joined{starts, 7};
  CHECK(joined.row_of(1, 3) == 6);
  CHECK(joined.row_of(1, 4) == -1);
  CHECK(joined.row_of(2, 3) == -1);
  CHECK(sequence_starts{}.row_of(1, 4) == 4);
}
