// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/tile/serial/group.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

template <class T, int Lanes>
constexpr per_lane<T, serial_group<Lanes>> lanes_times(T factor) {
  per_lane<T, serial_group<Lanes>> values{};
  for (int lane : serial_group<Lanes>{}) {
    values[lane] = static_cast<T>(lane) * factor;
  }
  return values;
}

/// Keeps what came first: shows the order in which lanes are combined.
struct first_digits {
  TESSERA_FN constexpr std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a * 31 + b; }
};

constexpr int sum_of_ranks() {
  serial_group<8> group;
  auto values = lanes_times<int, 8>(1);
  return exclusive_sum(group, values) * 100 + values[7];
}
static_assert(sum_of_ranks() == 28 * 100 + 21);
static_assert(serial_group<32>::size == 32);

}  // namespace

TEST_CASE("a loop visits the lanes in order", "[host]") {
  int next = 0;
  for (int lane : serial_group<17>{}) {
    CHECK(lane == next++);
  }
  CHECK(next == 17);
}

TEST_CASE("sums, extremes and broadcasts see every lane", "[host]") {
  serial_group<64> const group;
  auto const values = lanes_times<int, 64>(-3);
  CHECK(sum(group, values) == -3 * 63 * 32);
  CHECK(maximum(group, values) == 0);
  CHECK(minimum(group, values) == -189);
  CHECK(broadcast(group, values, 63) == -189);
  CHECK(sum(serial_group<1>{}, lanes_times<int, 1>(5)) == 0);
}

TEST_CASE("lanes are combined in pairs at distance 16, 8, 4, 2, 1, and 32s from first to last", "[host]") {
  serial_group<4> const four;
  per_lane<std::uint64_t, serial_group<4>> const v{{1, 2, 3, 4}};
  first_digits const f;
  CHECK(reduce(four, v, f) == f(f(1, 3), f(2, 4)));
  serial_group<96> const three_warps;
  auto const many = lanes_times<std::uint64_t, 96>(1);
  std::uint64_t parts[3];
  for (std::uint64_t w = 0; w < 3; ++w) {
    per_lane<std::uint64_t, serial_group<32>> warp{};
    for (int lane : serial_group<32>{}) {
      warp[lane] = w * 32 + static_cast<std::uint64_t>(lane);
    }
    parts[w] = reduce(serial_group<32>{}, warp, f);
  }
  CHECK(reduce(three_warps, many, f) == f(f(parts[0], parts[1]), parts[2]));
}

TEST_CASE("votes become masks, and a mask gives each lane its rank", "[host]") {
  serial_group<32> const group;
  per_lane<bool, serial_group<32>> votes{};
  CHECK_FALSE(any(group, votes));
  for (int lane : group) {
    votes[lane] = lane % 3 == 0;
  }
  CHECK(any(group, votes));
  CHECK_FALSE(all(group, votes));
  std::uint32_t const mask = ballot(group, votes);
  CHECK(mask == 0x49249249u);
  CHECK(count_below(group, mask, 0) == 0);
  CHECK(count_below(group, mask, 31) == 11);
  for (int lane : group) {
    votes[lane] = true;
  }
  CHECK(all(group, votes));
  CHECK(ballot(group, votes) == 0xffffffffu);
  CHECK(count_below(0xffffffffu, 31) == 31);
}

TEST_CASE("an atomic addition gives the value before", "[host]") {
  std::uint32_t counter = 5;
  CHECK(serial_group<1>{}.atomic_add(counter, 3) == 5);
  CHECK(counter == 8);
}

TEST_CASE("a serial_group is known from groups whose lanes have an order of their own", "[host]") {
  static_assert(is_serial_group<serial_group<1>> && is_serial_group<serial_group<128>>);
  static_assert(!is_serial_group<int>);
  CHECK(is_serial_group<serial_group<32>>);
}
