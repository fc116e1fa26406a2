// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <map>
#include <tuple>

#include <tessera/program/quantize_schedule.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Every tile once, and none that is to be encoded before all that it depends on was summarized.
void check_order(quantize_schedule const& schedule) {
  CAPTURE(schedule.key_heads, schedule.group, schedule.query_tiles, schedule.key_tiles, schedule.section);
  CAPTURE(schedule.has_keys, schedule.has_values, schedule.has_key_mean);
  std::map<std::tuple<quantize_task, std::int32_t, std::int32_t>, int> seen;
  std::map<std::pair<quantize_task, std::int32_t>, std::int32_t> summarized;
  std::int64_t wrong = 0;
  for (std::int32_t i = 0; i < schedule.count(); ++i) {
    quantize_work const work = schedule.at(i);
    wrong += ++seen[{work.task, work.head, work.tile}] == 1 ? 0 : 1;
    bool const is_query = work.task == quantize_task::queries;
    wrong += work.tile >= 0 && work.tile < (is_query ? schedule.query_tiles : schedule.key_tiles) ? 0 : 1;
    wrong += work.head >= 0 && work.head < schedule.key_heads * (is_query ? schedule.group : 1) ? 0 : 1;
    auto const done = [&](quantize_task task, std::int32_t head) {
      return summarized[{task, head}] == schedule.key_tiles;
    };
    if (work.task == quantize_task::summarize_keys || work.task == quantize_task::summarize_values) {
      ++summarized[{work.task, work.head}];
    } else if (is_query && schedule.has_key_mean) {
      wrong += done(quantize_task::summarize_keys, work.head / schedule.group) ? 0 : 1;
    } else if (work.task == quantize_task::keys && schedule.has_key_mean) {
      wrong += done(quantize_task::summarize_keys, work.head) ? 0 : 1;
    } else if (work.task == quantize_task::values) {
      wrong += done(quantize_task::summarize_values, work.head) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
  std::int64_t const kinds =
      (schedule.has_keys ? 1 : 0) + (schedule.has_values ? 2 : 0) + (schedule.has_key_mean ? 1 : 0);
  CHECK(static_cast<std::int64_t>(seen.size()) ==
        schedule.key_heads * (std::int64_t{schedule.group} * schedule.query_tiles + kinds * schedule.key_tiles));
  CHECK(schedule.at(schedule.count()).task == quantize_task::none);
}

}  // namespace

TEST_CASE("each tile is encoded once, after all that its mean or scale depends on", "[host]") {
  for (std::int32_t const heads : {1, 2, 5, 8}) {
    for (std::int32_t const section : {1, 2, 3, 8}) {
      for (std::int32_t const tiles : {1, 3}) {
        for (int parts = 0; parts < 8; ++parts) {
          check_order({heads, 1 + heads % 3, parts % 2 == 0 ? 0 : 2, tiles, section, (parts & 2) != 0, (parts & 4) != 0,
                       (parts & 2) != 0});
        }
        check_order({heads, 2, 2, tiles, section, true, true, false});
      }
    }
  }
}
