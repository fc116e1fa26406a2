// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <tessera/program/attention/detail/quantized_decode_schedule.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Checks how often each row is in a work item: once in each split, so that it meets all keys that it sees.
void check_every_row(few_query_schedule const& schedule) {
  attention_shape const& s = schedule.shape;
  std::vector<std::int64_t> found(static_cast<std::size_t>(s.batch * s.query_heads * s.queries));
  for (std::uint32_t i = 0; i < schedule.count(); ++i) {
    few_query_work_item const work = schedule.at(i);
    for (int row = 0; row < 16; ++row) {
      few_query_row const found_row = schedule.row_of(work, row);
      if (found_row.is_inside) {
        CHECK(found_row.head / (s.query_heads / s.key_heads) == work.key_head);
        found[static_cast<std::size_t>((work.sequence * s.query_heads + found_row.head) * s.queries +
                                       found_row.query)] += 1;
      }
    }
  }
  for (std::int64_t const times : found) {
    CHECK(times == schedule.splits());
  }
}

/// Checks that the tiles of a row's splits follow each other, and hold all keys that any row sees.
void check_every_tile(few_query_schedule const& schedule, std::int64_t last_query) {
  std::uint32_t const each = schedule.count() / schedule.by_splits.divisor;
  for (std::uint32_t i = 0; i < each; ++i) {
    few_query_work_item const first = schedule.at(i);
    std::int64_t next = first.first_tile;
    CHECK(next * 128 <= first.mask.of(0).first);
    for (std::uint32_t split = 0; split < schedule.by_splits.divisor; ++split) {
      few_query_work_item const work = schedule.at(split * each + i);
      CHECK(work.split == split);
      CHECK((work.tiles == 0 || work.first_tile == next));
      CHECK(work.tiles >= 0);
      CHECK(std::abs(work.tiles - first.tiles) <= 1);
      next += work.tiles;
    }
    key_interval const seen = first.mask.of(last_query);
    CHECK((seen.first >= seen.end || next * 128 >= seen.end));
    CHECK((next - first.first_tile) * 128 < seen.end + 128);
  }
}

}  // namespace

TEST_CASE("few queries are shared out so that every row meets every key that it sees once", "[host]") {
  for (std::int64_t const queries : {1, 3, 16}) {
    for (std::int64_t const keys : {1, 127, 128, 129, 1000}) {
      for (std::int64_t const splits : {1, 2, 7}) {
        for (std::int64_t const left : {-1, 100}) {
          CAPTURE(queries, keys, splits, left);
          few_query_schedule const schedule =
              few_query_schedule::of({2, 6, 2, queries, keys, 64}, {}, {}, left, left < 0 ? -1 : 0, splits);
          check_every_row(schedule);
          check_every_tile(schedule, queries - 1);
        }
      }
    }
  }
}

TEST_CASE("sequences without keys or queries have work items without tiles", "[host]") {
  std::vector<std::int32_t> const lengths{0, 200};
  sequence_lengths const some(lengths);
  few_query_schedule schedule = few_query_schedule::of({2, 2, 1, 4, 300, 64}, {}, some, -1, -1, 2);
  CHECK(schedule.at(0).tiles == 0);
  CHECK(schedule.at(1).tiles == 1);
  schedule.query_lengths = some;
  schedule.key_lengths = {};
  CHECK(schedule.at(0).tiles == 0);
  CHECK(schedule.at(1).tiles == 1);
  CHECK(schedule.at(3).tiles == 2);
}
