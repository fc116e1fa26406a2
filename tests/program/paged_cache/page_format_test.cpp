// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <set>
#include <vector>

#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("the parts of a page follow each other without gaps", "[host]") {
  for (int channels : {64, 96, 128, 256}) {
    for (int bits : {2, 3, 4, 8}) {
      for (int layers : {1, 2}) {
        CAPTURE(channels, bits, layers);
        cache_page_format const f{channels, bits, 4, channels / 32, layers};
        CHECK(f.key_norms(0) == 0);
        CHECK(f.value_scales(0) == 128);
        CHECK(f.header() == 128 + 128 * f.value_groups);
        CHECK(f.key_scales() == f.header() + 32);
        CHECK(f.key_codes() == f.key_scales() + 4 * channels);
        CHECK(f.value_codes() == f.key_codes() + 64 * channels * bits / 8);
        CHECK(f.value_ratios() == f.value_codes() + 64 * channels / 2);
        CHECK(f.read_bytes() == f.value_ratios() + 128 * f.value_groups);
        CHECK(f.bytes() == f.read_bytes() + (layers - 1) * f.layer_bytes());
        CHECK(f.read_offset(1) + f.read_bytes() == f.read_bytes() + f.layer_bytes());
        CHECK(f.bytes() % 32 == 0);
        CHECK(f.key_codes() % 16 == 0);
        CHECK(f.value_codes() % 16 == 0);
      }
    }
  }
}

TEST_CASE("slots of tokens and channels are permutations", "[host]") {
  std::set<int> tokens;
  for (int token = 0; token < 64; ++token) {
    tokens.insert(token_slot(token));
    CHECK(token_slot(token) / 8 == token % 8);  // the tokens of a lane's row are neighbours
  }
  CHECK(tokens.size() == 64);
  CHECK(*tokens.rbegin() == 63);
  std::set<int> channels;
  for (int channel = 0; channel < 256; ++channel) {
    channels.insert(channel_slot(channel));
    CHECK(channel_slot(channel) / 8 % 4 == channel % 8 / 2);
  }
  CHECK(channels.size() == 256);
  CHECK(*channels.rbegin() == 255);
}

TEST_CASE("a lane holds what a tensor core's first operand asks of it", "[host]") {
  for (int lane = 0; lane < 32; ++lane) {
    for (int a = 0; a < 4; ++a) {
      for (int half = 0; half < 2; ++half) {
        int const row = lane / 4 + 8 * (a % 2);
        int const column = 2 * (lane % 4) + 8 * (a / 2) + half;
        for (int tile = 0; tile < 4; ++tile) {
          code_coordinates const coordinate = code_coordinates::of(tile, row, column);
          CHECK((coordinate.lane == lane && coordinate.field == 4 * tile + a && coordinate.half == half));
          CHECK((coordinate.tile() == tile && coordinate.row() == row && coordinate.column() == column));
        }
      }
    }
  }
}

TEST_CASE("every code comes back from its bits, and no two share a bit", "[host]") {
  for (int bits : {2, 3, 4, 8}) {
    CAPTURE(bits);
    constexpr int strips = 4;
    std::vector<std::uint32_t> words(static_cast<std::size_t>(strips * 32 * bits), 0xffffffffU);
    auto const code = [&](int strip, int lane, int field, int half) {
      auto const index = static_cast<std::uint64_t>(((strip * 32 + lane) * 16 + field) * 2 + half);
      return static_cast<std::uint32_t>(testing::hash(9, index)) & ((1U << bits) - 1U);
    };
    for (int strip = 0; strip < strips; ++strip) {
      for (int lane = 0; lane < 32; ++lane) {
        lane_codes codes;
        for (int i = 0; i < 32; ++i) {
          codes.put(bits, i / 2, i % 2, code(strip, lane, i / 2, i % 2));
        }
        for (int word = 0; word < bits; ++word) {
          words[static_cast<std::size_t>(lane_codes::slot(bits, strip, lane, word))] = codes.words[word];
        }
      }
    }
    int wrong = 0;
    for (int i = 0; i < strips * 32 * 32; ++i) {
      code_coordinates const coordinate{i / 32 % 32, i / 2 % 16, i % 2};
      wrong += read_code(words.data(), bits, i / 1024, coordinate) !=
               code(i / 1024, coordinate.lane, coordinate.field, coordinate.half);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("with 4 bits, masks alone make subnormal halves of codes", "[host]") {
  lane_codes codes;
  for (int i = 0; i < 32; ++i) {
    codes.put(4, i / 2, i % 2, static_cast<std::uint32_t>(i * 7 % 16));
  }
  for (int tile = 0; tile < 4; ++tile) {
    for (int a = 0; a < 4; ++a) {
      std::uint32_t const masked = (codes.words[tile] >> (a / 2 * 8)) & (a % 2 == 0 ? 0x000f000fU : 0x00f000f0U);
      std::uint32_t const factor = a % 2 == 0 ? 1 : 16;
      CHECK((masked & 0xffffU) == factor * codes.get(4, 4 * tile + a, 0));
      CHECK(masked >> 16 == factor * codes.get(4, 4 * tile + a, 1));
    }
  }
}

TEST_CASE("pages are sealed when the window is full", "[host]") {
  CHECK(sealed_pages(63, 0) == 0);
  CHECK(sealed_pages(64, 0) == 1);
  CHECK(sealed_pages(191, 128) == 0);
  CHECK(sealed_pages(192, 128) == 1);
  CHECK(sealed_pages(0, 128) == 0);
}
