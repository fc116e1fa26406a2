// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <set>
#include <vector>

#include <tessera/program/attention/quantized_operands.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("codes have whole tiles of 128 tokens", "[host]") {
  CHECK(padded_tokens(0) == 0);
  CHECK(padded_tokens(1) == 128);
  CHECK(padded_tokens(127) == 128);
  CHECK(padded_tokens(128) == 128);
  CHECK(padded_tokens(129) == 256);
  CHECK(padded_tokens((std::int64_t{1} << 40) + 1) == (std::int64_t{1} << 40) + 128);
}

TEST_CASE("lanes of a tensor core product find their weights' values as neighbours", "[host]") {
  for (int first : {0, 16, 112, 4096}) {
    std::set<int> places;
    for (int lane = 0; lane < 4; ++lane) {
      int const tokens[] = {2 * lane, 2 * lane + 1, 8 + 2 * lane, 8 + 2 * lane + 1};
      for (int i = 0; i < 4; ++i) {
        CHECK(value_slot(first + tokens[i]) == first + 4 * lane + i);
        places.insert(value_slot(first + tokens[i]));
      }
    }
    CHECK(places.size() == 16);
    CHECK((*places.begin() == first && *places.rbegin() == first + 15));
  }
}

TEST_CASE("a sequence is never longer than its extent, nor shorter than nothing", "[host]") {
  std::vector<std::int32_t> const lengths{-1, 0, 1, 99, 100, 101, 0x7fffffff, -0x7fffffff - 1};
  std::vector<std::int64_t> const expected{0, 0, 1, 99, 100, 100, 100, 0};
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    CHECK(length_of(lengths, static_cast<std::int64_t>(i), 100) == expected[i]);
    CHECK(length_of({}, static_cast<std::int64_t>(i), 100) == 100);
    CHECK(length_of(lengths, static_cast<std::int64_t>(i), 0) == 0);
  }
}

TEST_CASE("lists of tiles are no longer than their room", "[host]") {
  std::vector<std::int32_t> const counts{-5, 0, 3, 4, 5, 0x7fffffff};
  std::vector<std::int32_t> const tiles(6 * 4);
  attention_block_list const list{{counts.data(), {1, 2, 3}}, {tiles.data(), {1, 2, 3, 4}}};
  CHECK(list.count(0, 0, 0) == 0);
  CHECK(list.count(0, 0, 1) == 0);
  CHECK(list.count(0, 0, 2) == 3);
  CHECK(list.count(0, 1, 0) == 4);
  CHECK(list.count(0, 1, 1) == 4);
  CHECK(list.count(0, 1, 2) == 4);
}

TEST_CASE("tokens of sequences one behind the other are within all tokens, or nowhere", "[host]") {
  sequence_starts const apart;
  CHECK(apart.row_of(3, 17) == 17);
  std::vector<std::int32_t> const first{0, 10, 10, -3, 0x7fffffff};
  sequence_starts const packed{first, 20};
  CHECK(packed.row_of(0, 0) == 0);
  CHECK(packed.row_of(1, 9) == 19);
  CHECK(packed.row_of(1, 10) == -1);
  CHECK(packed.row_of(2, 0) == 10);
  CHECK(packed.row_of(3, 2) == -1);
  CHECK(packed.row_of(3, 3) == 0);
  CHECK(packed.row_of(4, 0) == -1);
  CHECK(packed.row_of(4, 100) == -1);  // beyond 31 bits
}

TEST_CASE("codes of 4 bits are two to an element, the even channel first", "[host]") {
  std::vector<int4x2> pairs;
  std::vector<std::int8_t> bytes;
  for (int channel = 0; channel < 8; channel += 2) {
    pairs.push_back(pack_int4(channel - 8, 7 - channel));
    bytes.push_back(static_cast<std::int8_t>(channel - 128));
    bytes.push_back(static_cast<std::int8_t>(127 - channel));
  }
  quantized_keys<int4x2> const halves{{pairs.data(), {1, 1, 1, 4}}, {}};
  quantized_keys<std::int8_t> const wholes{{bytes.data(), {1, 1, 1, 8}}, {}};
  for (int channel = 0; channel < 8; ++channel) {
    int const even = channel - channel % 2;
    CHECK(halves.code(0, 0, 0, channel) == (channel % 2 == 0 ? even - 8 : 7 - even));
    CHECK(wholes.code(0, 0, 0, channel) == (channel % 2 == 0 ? even - 128 : 127 - even));
  }
}
