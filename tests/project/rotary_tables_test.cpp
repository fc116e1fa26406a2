// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/project/rotary_tables.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("frequencies fall from one pair to the next, and there is one for each", "[host]") {
  CHECK(rotary_frequencies(10000.0, 0).empty());
  CHECK(rotary_frequencies(10000.0, 1) == std::vector<double>{1.0});
  CHECK(rotary_frequencies(10000.0, 2) == std::vector<double>{1.0});
  CHECK(rotary_frequencies(10000.0, 3).size() == 2);
  std::vector<double> const found = rotary_frequencies(10000.0, 128);
  REQUIRE(found.size() == 64);
  CHECK(found[32] == Approx(0.01).epsilon(1e-14));
  CHECK(found[63] == Approx(std::pow(10000.0, -126.0 / 128.0)).epsilon(1e-14));
}

TEST_CASE("tables have whole blocks for all positions, one at least", "[host]") {
  std::vector<double> const frequencies{1.0, 0.5, 0.25};
  for (auto [positions, blocks] : {std::pair<std::int64_t, std::size_t>{0, 1}, {1, 1}, {255, 1}, {256, 1}, {257, 2}}) {
    rotary_tables const tables(frequencies, positions);
    CAPTURE(positions);
    CHECK(tables.within().size() == 256 * 3);
    CHECK(tables.blocks().size() == blocks * 3);
    rotary_embedding const rotary = tables.embedding(rotary_pairs::halves);
    CHECK(rotary.channels() == 6);
    CHECK(rotary.positions() == static_cast<std::int64_t>(blocks) * 256);
  }
  CHECK(rotary_tables({}, 1000).embedding(rotary_pairs::neighbours).channels() == 0);
}

TEST_CASE("a number of positions below zero is named", "[host]") {
  CHECK_THROWS_WITH(rotary_tables({1.0}, -1), "rotary_tables: there are -1 positions but that must not be negative");
  CHECK_THROWS_AS(rotary_tables({1.0}, INT64_MIN), shape_error);
}

TEST_CASE("turns are those of the angle on both sides of a block's end, times the amplitude once", "[host]") {
  std::vector<double> const frequencies{1.0, 0.1, 0.001};
  rotary_tables const tables(frequencies, 1000, 1.5);
  rotary_embedding const rotary = tables.embedding(rotary_pairs::halves);
  for (std::int64_t const position : {0, 1, 255, 256, 257, 511, 512, 999}) {
    for (std::int64_t pair = 0; pair < 3; ++pair) {
      double const angle = frequencies[static_cast<std::size_t>(pair)] * static_cast<double>(position);
      rotation const found = rotary.at(position, pair);
      CAPTURE(position, pair);
      CHECK(found.cosine == Approx(1.5 * std::cos(angle)).margin(5e-7));
      CHECK(found.sine == Approx(1.5 * std::sin(angle)).margin(5e-7));
    }
  }
}

TEST_CASE("copies of tables are read in their place", "[host]") {
  rotary_tables const tables({1.0, 0.5}, 300);
  std::vector<rotation> within = tables.within();
  std::vector<rotation> const blocks = tables.blocks();
  within[2 * 7 + 1] = {0.25F, 0.5F};
  rotary_embedding const rotary = tables.embedding(rotary_pairs::neighbours, within.data(), blocks.data());
  CHECK(rotary.pairs == rotary_pairs::neighbours);
  CHECK(rotary.at(7, 1).cosine == 0.25F);
  CHECK(rotary.at(7, 1).sine == 0.5F);
  CHECK(rotary.at(6, 1).cosine == tables.embedding(rotary_pairs::halves).at(6, 1).cosine);
}

TEST_CASE("bases, frequencies and amplitudes that are no finite numbers are refused with their values", "[host]") {
  CHECK_THROWS_AS(rotary_frequencies(NAN, 64), value_error);
  CHECK_THROWS_WITH(rotary_frequencies(NAN, 64), "rotary_frequencies: the base is nan but must be positive and finite");
  CHECK_THROWS_WITH(rotary_frequencies(-10000.0, 64),
                    "rotary_frequencies: the base is -10000.000000 but must be positive and finite");
  CHECK_THROWS_AS(rotary_frequencies(0.0, 64), value_error);
  CHECK_THROWS_AS(rotary_frequencies(INFINITY, 64), value_error);
  CHECK_THROWS_WITH(rotary_tables({1.0, NAN}, 10), "rotary_tables: the frequency of pair 1 is nan but must be finite");
  CHECK_THROWS_WITH(rotary_tables({1.0}, 10, INFINITY), "rotary_tables: the amplitude is inf but must be finite");
}

TEST_CASE("copies of tables that are null are refused", "[host]") {
  rotary_tables const tables({1.0, 0.5}, 300);
  CHECK_THROWS_WITH(tables.embedding(rotary_pairs::halves, nullptr, tables.blocks().data()),
                    "rotary_tables.embedding: the angles of positions have no memory but 512 elements");
  CHECK_THROWS_WITH(tables.embedding(rotary_pairs::halves, tables.within().data(), nullptr),
                    "rotary_tables.embedding: the angles of blocks have no memory but 4 elements");
}
