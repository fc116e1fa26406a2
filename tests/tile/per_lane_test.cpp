// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/testing/generators.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/serial/group.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// A thread that plays the lanes 9 to 12 of a group.
struct some_lanes_here {
  static constexpr int lanes_here = 4;
  static constexpr int slot(int lane) { return lane - 9; }
};

int plainly_counted_below(std::uint32_t mask, int lane) {
  int count = 0;
  for (int bit = 0; bit < lane; ++bit) {
    count += static_cast<int>((mask >> bit) & 1U);
  }
  return count;
}

}  // namespace

TEST_CASE("each lane has its own variable in its own slot", "[host]") {
  per_lane<std::int16_t, some_lanes_here> values{};
  STATIC_REQUIRE(sizeof(values) == 8);
  for (int lane = 9; lane < 13; ++lane) {
    values[lane] = static_cast<std::int16_t>(100 + lane);
  }
  CHECK(values.values[0] == 109);
  CHECK(values.values[3] == 112);
  per_lane<std::int16_t, some_lanes_here> const& fixed = values;
  CHECK(fixed[10] == 110);
  serial_group<5> const group;
  per_lane<float, serial_group<5>> all{};
  for (int lane : group) {
    all[lane] = static_cast<float>(lane);
  }
  CHECK(all.values[4] == 4.0F);
}

TEST_CASE("lanes of all groups visit each index once, and none behind the last", "[host]") {
  for (int const count : {0, 1, 4, 5, 12, 13}) {
    CAPTURE(count);
    int visits[15] = {};
    for (std::int64_t which = 0; which < 3; ++which) {
      each_index<5>(serial_group<5>{}, which, count, [&](std::int64_t i) { ++visits[i]; });
    }
    for (int i = 0; i < 15; ++i) {
      CHECK(visits[i] == (i < count ? 1 : 0));
    }
  }
}

TEST_CASE("bits below a lane are counted as a loop counts them", "[host]") {
  int wrong = 0;
  for (std::uint64_t i = 0; i < 4096; ++i) {
    auto const random = static_cast<std::uint32_t>(testing::hash(5, i));
    for (std::uint32_t const mask : {random, 0U, ~0U, 1U << (i % 32), ~(1U << (i % 32))}) {
      for (int lane = 0; lane < 32; ++lane) {
        wrong += count_below(mask, lane) == plainly_counted_below(mask, lane) ? 0 : 1;
      }
    }
  }
  CHECK(wrong == 0);
  STATIC_REQUIRE(count_below(0xffffffffU, 31) == 31);
  STATIC_REQUIRE(count_below(0xffffffffU, 0) == 0);
}

TEST_CASE("lane 0 alone acts for all", "[host]") {
  int acting = 0;
  for (int lane : serial_group<64>{}) {
    acting += is_first(lane) ? lane + 1 : 0;
  }
  CHECK(acting == 1);
}
