// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/attention/detail/merge_forward_splits.hpp>
#include <tessera/sage_attention2.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using method = sage_attention2::method;
using state = online_softmax<float>::state_type;
constexpr std::int32_t block_rows = 8;
constexpr std::int32_t tile_keys = 5;
constexpr float poison = -7e30F;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Scores in base 2 and values, which are not rounded, and the sums of splits of them.
struct problem {
  std::int32_t heads;
  std::int32_t queries;
  std::int32_t tiles;
  std::int32_t channels;
  std::vector<float> scores;  ///< heads x queries x keys
  std::vector<float> values;  ///< heads x keys x channels

  std::int32_t keys() const { return tiles * tile_keys; }
  problem(std::int32_t of_heads, std::int32_t of_queries, std::int32_t of_tiles, std::int32_t of_channels)
      : heads(of_heads), queries(of_queries), tiles(of_tiles), channels(of_channels) {
    std::mt19937 random(static_cast<unsigned>(queries + tiles));
    std::normal_distribution<float> normal;
    for (std::int32_t i = 0; i < heads * queries * keys(); ++i) {
      scores.push_back(20.0F * normal(random));
    }
    for (std::int32_t i = 0; i < heads * keys() * channels; ++i) {
      values.push_back(normal(random));
    }
  }
  float score(std::int32_t head, std::int32_t query, std::int32_t key) const {
    return scores[at((head * queries + query) * keys() + key)];
  }
  float value(std::int32_t head, std::int32_t key, std::int32_t channel) const {
    return values[at((head * keys() + key) * channels + channel)];
  }
};

void leave_split(problem const& p, attention_split_slots<state> const& slots, std::int32_t slot,
                 attention_work_item const& work, tile_range tiles) {
  for (std::int32_t row = 0; row < block_rows && work.block * block_rows + row < p.queries; ++row) {
    std::int32_t const query = work.block * block_rows + row;
    float reference = -infinity;
    for (std::int32_t key = tiles.begin * tile_keys; key < tiles.end * tile_keys; ++key) {
      reference = std::fmax(reference, p.score(work.head, query, key));
    }
    double sum = 0;
    std::vector<double> totals(at(p.channels), 0.0);
    for (std::int32_t key = tiles.begin * tile_keys; key < tiles.end * tile_keys; ++key) {
      double const weight = std::exp2(static_cast<double>(p.score(work.head, query, key) - reference));
      sum += weight;
      for (std::int32_t channel = 0; channel < p.channels; ++channel) {
        totals[at(channel)] += 448 * weight * p.value(work.head, key, channel);
      }
    }
    slots.row_of(slot, row) = {{reference, reference, static_cast<float>(sum)}, static_cast<float>(448 * sum)};
    for (std::int32_t channel = 0; channel < p.channels; ++channel) {
      slots.totals_of(slot, row)[slots.place_of(channel)] = static_cast<float>(totals[at(channel)]);
    }
  }
}

/// Checks one row against softmax in double.
void check_row(problem const& p, std::int32_t head, std::int32_t query, float const* found, float lse) {
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int32_t key = 0; key < p.keys(); ++key) {
    largest = std::fmax(largest, p.score(head, query, key));
  }
  double sum = 0;
  std::vector<double> totals(at(p.channels), 0.0);
  for (std::int32_t key = 0; key < p.keys(); ++key) {
    double const weight = std::exp2(p.score(head, query, key) - largest);
    sum += weight;
    for (std::int32_t channel = 0; channel < p.channels; ++channel) {
      totals[at(channel)] += weight * p.value(head, key, channel);
    }
  }
  double worst = 0;
  for (std::int32_t channel = 0; channel < p.channels; ++channel) {
    worst = std::fmax(worst, std::fabs(totals[at(channel)] / sum - found[channel]));
  }
  REQUIRE(worst < 2e-5);
  REQUIRE(std::fabs((largest + std::log2(sum)) * std::log(2.0) - lse) < 1e-4);
}

/// Checks a problem, and returns how many work items were cut.
int check(problem const& p, int multiprocessors, std::int32_t ranges, int parts) {
  CAPTURE(p.heads, p.queries, p.tiles, p.channels, multiprocessors, ranges, parts);
  attention_schedule const schedule{p.heads, divide_up(p.queries, block_rows), p.heads, true};
  attention_split_policy const policy{{1, 1, 1}, ranges, 1, 0, 0, 1000000};
  auto const splits = attention_splits::of(
      {schedule.count(), multiprocessors, 1000, false}, [&](std::int32_t) { return p.tiles; }, policy);
  REQUIRE(splits.ranges > 0);
  std::int32_t const slot_count = 2 * splits.ranges;
  buffer<float> memory(attention_split_slots<state>::floats_of_slot(block_rows, p.channels) * slot_count);
  auto const slots = attention_split_slots<state>::in(memory.view(), slot_count, block_rows, p.channels);
  std::vector<float> result(at(p.heads * p.queries * p.channels), poison);
  std::vector<float> lse(at(p.heads * p.queries), poison);
  std::vector<bool> is_cut(at(schedule.count()), false);
  for (std::int32_t turn = 0; turn < splits.turns(); ++turn) {
    for (std::int32_t id = splits.first(turn); id >= 0; id = splits.next(id)) {
      attention_split const split = splits.at(id);
      if (split.slot >= 0) {
        is_cut[at(split.work)] = true;
        leave_split(p, slots, split.slot, schedule.at(split.work), split.of({0, p.tiles, 0, p.tiles}));
      }
    }
  }
  std::vector<float> const ones(at(p.heads * p.channels), 1.0F);
  attention_shape const s{1, p.heads, p.heads, p.queries, p.keys(), p.channels};
  attention_writer<method, float> writer{s,
                                         {},
                                         {ones.data(), {1, p.heads, p.channels}},
                                         {},
                                         {},
                                         {},
                                         {},
                                         {result.data(), {1, p.heads, p.queries, p.channels}},
                                         {lse.data(), {1, p.heads, p.queries}}};
  merge_attention_splits<method, float> const merge{splits, schedule, slots, writer, parts};
  cpu{.threads = 1}.run(merge, merge.groups());
  int cut = 0;
  for (std::int32_t index = 0; index < schedule.count(); ++index) {
    attention_work_item const work = schedule.at(index);
    cut += is_cut[at(index)] ? 1 : 0;
    for (std::int32_t query = work.block * block_rows; query < (work.block + 1) * block_rows && query < p.queries;
         ++query) {
      std::int32_t const row = work.head * p.queries + query;
      float const* const found = result.data() + row * p.channels;
      if (is_cut[at(index)]) {
        check_row(p, work.head, query, found, lse[at(row)]);
      } else {
        REQUIRE(found[0] == poison);
        REQUIRE(lse[at(row)] == poison);
      }
    }
  }
  return cut;
}

}  // namespace

TEST_CASE("Splits of work items come to what the work items come to, and the others are not touched") {
  for (int const parts : {1, 4}) {
    CHECK(check({2, 21, 30, 20}, 7, 1, parts) > 3);
    CHECK(check({3, 8, 64, 64}, 5, 1, parts) == 3);
    CHECK(check({1, 5, 40, 128}, 20, 1, parts) == 1);
    CHECK(check({1, 9, 24, 256}, 3, 2, parts) == 2);
    CHECK(check({5, 24, 12, 36}, 4, 1, parts) < 15);
  }
}

TEST_CASE("Rows of which no split sees a key are zeros and minus infinity, and a NaN is one") {
  attention_schedule const schedule{1, 1, 1, true};
  auto const splits = attention_splits::of(
      {1, 4, 1000, true}, [](std::int32_t) { return 40; }, attention_split_policy{{1, 1, 1}, 1, 1, 0, 0, 1000});
  REQUIRE(splits.ranges == 4);
  buffer<float> memory(attention_split_slots<state>::floats_of_slot(block_rows, 4) * 8);
  auto const slots = attention_split_slots<state>::in(memory.view(), 8, block_rows, 4);
  float const nan = std::numeric_limits<float>::quiet_NaN();
  for (std::int32_t slot = 0; slot < 8; ++slot) {
    for (std::int32_t row = 0; row < block_rows; ++row) {
      bool const is_nan = row == 1 && slot == 4;
      bool const sees = row == 2 && slot == 6;
      slots.row_of(slot, row) = {{sees ? 3.0F : -infinity, sees ? 3.0F : -infinity,
                                  is_nan ? nan
                                  : sees ? 1.0F
                                         : 0.0F},
                                 is_nan ? nan
                                 : sees ? 448.0F
                                        : 0.0F};
      for (int channel = 0; channel < 4; ++channel) {
        slots.totals_of(slot, row)[slots.place_of(channel)] = is_nan ? nan : sees ? 448.0F * 5.0F : 0.0F;
      }
    }
  }
  std::vector<float> result(3 * 4, poison);
  std::vector<float> lse(3, poison);
  std::vector<float> const ones(4, 1.0F);
  attention_writer<method, float> writer{
      {1, 1, 1, 3, 200, 4},   {}, {ones.data(), {1, 1, 4}}, {}, {}, {}, {}, {result.data(), {1, 1, 3, 4}},
      {lse.data(), {1, 1, 3}}};
  merge_attention_splits<method, float> const merge{splits, schedule, slots, writer, 1};
  cpu{.threads = 1}.run(merge, merge.groups());
  for (std::size_t channel = 0; channel < 4; ++channel) {
    CHECK(result[channel] == 0.0F);
    CHECK(std::isnan(result[4 + channel]));
    CHECK(result[8 + channel] == 5.0F);
  }
  CHECK(lse[0] == -infinity);
  CHECK(std::isnan(lse[1]));
  CHECK(std::fabs(lse[2] - 3.0F * std::log(2.0F)) < 1e-6F);
}
