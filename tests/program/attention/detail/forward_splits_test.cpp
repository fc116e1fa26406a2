// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include <tessera/program/attention/detail/forward_splits.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

constexpr attention_split_policy plain{{1, 1, 1}, 1, 4, 1, 2, 1000};

attention_splits splits_of(std::vector<std::int32_t> const& costs, int multiprocessors, bool is_even,
                           std::int32_t most_ranges = 1 << 20, attention_split_policy const& policy = plain) {
  return attention_splits::of(
      {static_cast<std::int32_t>(costs.size()), multiprocessors, most_ranges, is_even},
      [&](std::int32_t work) { return costs[static_cast<std::size_t>(work)]; }, policy);
}

/// All turns in order, with their costs.
struct handed_out {
  std::vector<std::int32_t> tiles;              ///< the tiles of each work item
  std::vector<std::vector<tile_range>> handed;  ///< for each work item, the ranges of its tiles that were handed out
  std::vector<std::int64_t> turns;              ///< cost of each turn
  std::set<std::int32_t> slots;
};
handed_out hand_out(attention_splits const& splits, std::vector<std::int32_t> const& costs,
                    std::vector<std::int32_t> const& tiles) {
  handed_out found{tiles, std::vector<std::vector<tile_range>>(tiles.size()), {}, {}};
  int wrong_slots = 0;
  int wrong_counts = 0;
  int wrong_cuts = 0;
  std::vector<int> split_counts(costs.size(), 0);
  std::vector<bool> has_slots(costs.size(), false);
  for (std::int32_t turn = 0; turn < splits.turns(); ++turn) {
    found.turns.push_back(0);
    for (std::int32_t id = splits.first(turn); id >= 0; id = splits.next(id)) {
      attention_split const split = splits.at(id);
      auto const work = static_cast<std::size_t>(split.work);
      found.handed[work].push_back(split.of({0, tiles[work], 0, tiles[work]}));
      ++split_counts[work];
      if (split.slot >= 0) {
        has_slots[work] = true;
        bool const is_new = found.slots.insert(split.slot).second;  // no two splits have the same
        wrong_slots += split.slot < 2 * splits.ranges && is_new ? 0 : 1;
      }
      found.turns.back() += split.slot < 0 ? costs[work] : split.end - split.begin;
    }
  }
  CHECK(splits.first(splits.turns()) == -1);
  for (std::size_t work = 0; work < costs.size(); ++work) {
    auto const number = static_cast<std::int32_t>(work) - splits.whole;
    wrong_counts += split_counts[work] >= 1 && has_slots[work] == (split_counts[work] > 1) ? 0 : 1;
    wrong_cuts += (number >= 0 && splits.is_cut(number)) == has_slots[work] ? 0 : 1;
    wrong_cuts +=
        number < 0 || splits.last_range(number) - splits.first_range(number) + 1 == split_counts[work] ? 0 : 1;
  }
  CHECK(wrong_slots == 0);
  CHECK(wrong_counts == 0);
  CHECK(wrong_cuts == 0);
  return found;
}

/// Whether each tile was handed out once: the ranges of a work item lie one behind the other, from its first tile to
/// the last one.
bool is_once(handed_out const& found) {
  for (std::size_t work = 0; work < found.tiles.size(); ++work) {
    auto ranges = found.handed[work];
    std::sort(ranges.begin(), ranges.end(), [](auto const& a, auto const& b) { return a.begin < b.begin; });
    std::int32_t end = 0;
    for (tile_range const& range : ranges) {
      if (range.begin >= range.end) {
        continue;
      }
      if (range.begin != end) {
        return false;
      }
      end = range.end;
    }
    if (end != found.tiles[work]) {
      return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("Each tile of each work item is handed out once, whatever the work items and the machine") {
  int shared = 0;
  for (int const multiprocessors : {1, 3, 16, 132, 144}) {
    for (std::int32_t const work_items : {1, 2, 7, 15, 16, 17, 48, 131, 132, 133, 176, 255, 256, 300, 1368}) {
      for (std::int32_t const cost : {1, 5, 31, 256, 1000}) {
        for (bool const is_even : {false, true}) {
          std::vector<std::int32_t> costs;
          for (std::int32_t work = 0; work < work_items; ++work) {
            costs.push_back(is_even ? cost : 1 + cost * (work_items - work) / work_items);
          }
          attention_splits const splits = splits_of(costs, multiprocessors, is_even);
          CAPTURE(multiprocessors, work_items, cost, is_even, splits.whole, splits.ranges, splits.length);
          CHECK(splits.whole + splits.work_items == work_items);
          CHECK(is_once(hand_out(splits, costs, costs)));
          shared += splits.ranges > 0 ? 1 : 0;
        }
      }
    }
  }
  CHECK(shared > 50);
}

TEST_CASE("Splits of work items that have fewer tiles than was thought are all of these") {
  std::vector<std::int32_t> const costs(20, 64);
  attention_splits const splits = splits_of(costs, 132, true);
  REQUIRE(splits.ranges > 20);
  for (std::int32_t const tiles : {0, 1, 2, 15, 16, 63, 64}) {
    CHECK(is_once(hand_out(splits, costs, std::vector<std::int32_t>(20, tiles))));
  }
}

TEST_CASE("Waves of work items are whole, and what is left is shared by all multiprocessors") {
  std::vector<std::int32_t> const costs(1368, 1024);
  attention_splits const splits = splits_of(costs, 132, true, 1 << 20, attention_split_tuning{}(900));
  CHECK(splits.whole == 1320);
  CHECK(splits.work_items == 48);
  CHECK(splits.ranges == 132);
  handed_out const found = hand_out(splits, costs, costs);
  CHECK(*std::max_element(found.turns.begin() + splits.whole, found.turns.end()) == (48 * 1024 + 131) / 132);
}

TEST_CASE("A few work items of different lengths are shared from the first one on") {
  std::vector<std::int32_t> costs;
  for (std::int32_t block = 22; block > 0; --block) {
    costs.insert(costs.end(), 8, 6 * block);
  }
  attention_splits const splits = splits_of(costs, 132, false, 1 << 20, attention_split_tuning{}(900));
  CHECK(splits.whole == 0);
  CHECK(splits.ranges > 100);
  CHECK(is_once(hand_out(splits, costs, costs)));
}

TEST_CASE("Nothing is shared that gains nothing, costs too much to count, or has no memory") {
  attention_split_policy const policy = attention_split_tuning{}(900);
  CHECK(splits_of(std::vector<std::int32_t>(1320, 1024), 132, true, 1 << 20, policy).ranges == 0);
  CHECK(splits_of(std::vector<std::int32_t>(1451, 1024), 132, true, 1 << 20, policy).ranges == 0);
  CHECK(splits_of(std::vector<std::int32_t>(48, 16), 132, true, 1 << 20, policy).ranges == 0);
  CHECK(splits_of(std::vector<std::int32_t>(48, 65536), 132, true, 1 << 20, policy).ranges == 0);
  CHECK(splits_of(std::vector<std::int32_t>(48, 1024), 132, true, 1, policy).ranges == 0);
  attention_splits const some = splits_of(std::vector<std::int32_t>(4, 1024), 132, true, 40, policy);
  CHECK(some.ranges > 20);
  CHECK(some.ranges <= 40);
  CHECK(splits_of(std::vector<std::int32_t>(100000, 1024), 132, true, 1 << 20, policy).ranges == 0);
}
