// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/testing/adversary.hpp>
#include <tessera/tile/row_schedule.hpp>

#include "support/catch.hpp"
#include "tile/scheduled_rows.hpp"

using namespace tessera;

namespace {

struct visits {
  std::vector<int> of_tile;
  std::vector<int> of_split;  ///< how often a split of a row is opened
  std::int64_t wrong = 0;
};

/// What one worker does: it opens a split, walks it and closes it before the next.
void walk(row_schedule const& schedule, std::int32_t worker, visits& seen) {
  row_split before{};
  bool is_open = false;
  for (std::int32_t index = worker; index < schedule.count(); index += schedule.workers) {
    row_split const part = schedule.split_at(index);
    gemm_work_item const work = schedule.at(index);
    seen.wrong += work.k_tiles == (part.is_there ? 5 : 0) ? 0 : 1;
    if (!part.is_there) {
      continue;
    }
    bool const is_inside = part.row >= 0 && part.row < schedule.rows && work.column >= 0 &&
                           work.column < schedule.columns && part.split < schedule.states();
    seen.wrong += is_inside && work.row == part.row ? 0 : 1;
    seen.wrong += (part.before == 0) == !is_open ? 0 : 1;
    seen.wrong += is_open && (part.row != before.row || part.split != before.split ||
                              part.position <= before.position || part.before != before.before + 1)
                      ? 1
                      : 0;
    is_open = !part.is_last;
    before = part;
    if (is_inside) {
      ++seen.of_tile[static_cast<std::size_t>(part.row * schedule.columns + work.column)];
      seen.of_split[static_cast<std::size_t>(part.row * schedule.states() + part.split)] += part.is_last;
    }
  }
  seen.wrong += is_open ? 1 : 0;
}

void check_schedule(std::int32_t rows, std::int32_t columns, std::int32_t workers, std::int32_t most_states,
                    std::int32_t cut) {
  CAPTURE(rows, columns, workers, most_states, cut);
  row_schedule const whole = row_schedule::make(rows, columns, 5, workers, most_states);
  visits seen;
  seen.of_tile.resize(static_cast<std::size_t>(rows * columns));
  for (row_schedule const& part :
       {whole.of_positions(0, std::min(cut, columns)), whole.of_positions(std::min(cut, columns), columns)}) {
    CHECK((part.workers <= workers && part.states() <= std::max(most_states, 1)));
    seen.of_split.assign(static_cast<std::size_t>(rows * part.states()), 0);
    for (std::int32_t worker = 0; worker < part.workers; ++worker) {
      walk(part, worker, seen);
    }
    CHECK(std::all_of(seen.of_split.begin(), seen.of_split.end(), [](int count) { return count <= 1; }));
  }
  CHECK(seen.wrong == 0);
  CHECK(std::all_of(seen.of_tile.begin(), seen.of_tile.end(), [](int count) { return count == 1; }));
}

}  // namespace

TEST_CASE("a row schedule computes each tile once, and a worker stays with a row", "[host]") {
  for (std::int32_t const rows : {1, 2, 7, 31, 32, 65, 66, 67, 70, 140}) {
    for (std::int32_t const columns : {1, 2, 3, 15, 16, 17, 64, 65, 501}) {
      check_schedule(rows, columns, 66, 1000, 3);
      check_schedule(rows, columns, 66, 2, 0);
      check_schedule(rows, columns, 39, 10, 8);
      check_schedule(rows, columns, 5, 3, 40);
      check_schedule(rows, columns, 5, 1, 40);
    }
  }
}

TEST_CASE("a row schedule keeps all workers busy", "[host]") {
  for (std::int32_t const rows : {4, 5, 31, 32, 33, 34, 64, 67, 100}) {
    row_schedule const schedule = row_schedule::make(rows, 501, 64, 66);
    CAPTURE(rows);
    CHECK(schedule.steps() <= rows * 501 / 66 * 102 / 100 + 1);
  }
}

TEST_CASE("workers of a row schedule in any order make each tile once, and keep the rules for programs", "[host]") {
  row_schedule const schedule = row_schedule::make(7, 17, 5, 10);
  std::vector<std::int32_t> made(7 * 17, 0);
  testing::adversary{.seed = 3}.run(tessera_test::scheduled_rows{schedule, {made.data(), {7, 17}}}, schedule.workers);
  int tiles = 0;
  for (std::int32_t index = 0; index < schedule.count(); ++index) {
    row_split const part = schedule.split_at(index);
    if (part.is_there) {
      auto const at = static_cast<std::size_t>(part.row * 17 + schedule.at(index).column);
      CHECK(made[at] == tessera_test::scheduled_rows::mark(index % schedule.workers, part));
      ++tiles;
    }
  }
  CHECK(tiles == 7 * 17);
}
