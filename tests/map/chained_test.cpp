// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/concepts/sum_map.hpp>
#include <tessera/map/add_bias.hpp>
#include <tessera/map/chained.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/map/scaled_sum.hpp>
#include <tessera/testing/laws/sum_map.hpp>

#include "support/catch.hpp"
#include "support/map_sums.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// A user's own map.
struct rectified {
  float operator()(float sum, std::int64_t, std::int64_t) const { return sum > 0 ? sum : 0; }
};

/// Writes the coordinate into the sum: its digits show what came first.
struct with_digits {
  float base;
  float operator()(float sum, std::int64_t row, std::int64_t column) const {
    return sum * base + static_cast<float>(10 * row + column);
  }
};

static_assert(SumMap<chained<scaled_sum, rectified>> && SumMap<chained<chained<plain_sum, scaled_sum>, rectified>>);

}  // namespace

TEST_CASE("chained maps are applied in the order in which they stand", "[host]") {
  std::vector<float> const bias{1.0F, 10.0F};
  chained<scaled_sum, add_bias<float>> const scaled_first{{2.0F}, {bias}};
  chained<add_bias<float>, scaled_sum> const biased_first{{bias}, {2.0F}};
  CHECK(scaled_first(3.0F, 0, 1) == 16.0F);
  CHECK(biased_first(3.0F, 0, 1) == 26.0F);
  chained<scaled_sum, rectified> const negated{{-1.0F}, {}};
  CHECK(negated(-4.0F, 0, 0) == 4.0F);
  CHECK(negated(4.0F, 0, 0) == 0.0F);
  CHECK(testing::check_map_laws(negated, some_sums(), 4).text() == "");
  CHECK(testing::check_map_laws(chained<scaled_sum, rectified>{{0.5F}, {}}, some_sums(), 4).text() == "");
}

TEST_CASE("three maps in a row, whichever two are chained first, are given the same coordinate", "[host]") {
  chained<chained<with_digits, with_digits>, scaled_sum> const from_left{{{100.0F}, {1000.0F}}, {2.0F}};
  chained<with_digits, chained<with_digits, scaled_sum>> const from_right{{100.0F}, {{1000.0F}, {2.0F}}};
  CHECK(from_left(7.0F, 1, 2) == 1424024.0F);  // 2 * (1000 * (100 * 7 + 12) + 12)
  CHECK(from_right(7.0F, 1, 2) == 1424024.0F);
}

TEST_CASE("the second map gets what the first one gives, of its type", "[host]") {
  STATIC_REQUIRE(std::is_same_v<decltype(chained<plain_sum, plain_sum>{}(std::int32_t{1}, 0, 0)), std::int32_t>);
  STATIC_REQUIRE(chained<plain_sum, plain_sum>{}(std::int32_t{16777217}, 0, 0) == 16777217);
  STATIC_REQUIRE(chained<plain_sum, scaled_sum>{{}, {0.25F}}(std::int32_t{-7}, 0, 0) == -1.75F);
  CHECK(std::isnan(chained<rectified, scaled_sum>{{}, {NAN}}(-1.0F, 0, 0)));
}

TEST_CASE("either of two chained maps may refuse a call", "[host]") {
  std::vector<float> const bias(3);
  chained<scaled_sum, add_bias<float>> const last{{2.0F}, {bias}};
  chained<add_bias<float>, scaled_sum> const first{{bias}, {2.0F}};
  CHECK_NOTHROW(last.check_sums("f", 7, 3));
  CHECK_NOTHROW(first.check_sums("f", 7, 3));
  std::string const refusal = "f: the bias has 3 values but the outputs have 4 columns";
  CHECK(message_of([&] { last.check_sums("f", 7, 4); }) == refusal);
  CHECK(message_of([&] { first.check_sums("f", 7, 4); }) == refusal);
}
