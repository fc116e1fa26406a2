// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/tile/row_schedule.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Each tile once; each worker opens a share, walks it and closes it before the next.
void check_schedule(std::int32_t rows, std::int32_t columns, std::int32_t workers, std::int32_t most_splits) {
  CAPTURE(rows, columns, workers, most_splits);
  row_schedule const schedule = row_schedule::make(rows, columns, 5, workers, most_splits);
  CHECK((schedule.workers <= workers && schedule.splits >= 1 && schedule.splits <= most_splits));
  std::vector<int> visits(static_cast<std::size_t>(rows * columns));
  std::int64_t wrong = 0;
  for (std::int32_t worker = 0; worker < schedule.workers; ++worker) {
    gemm_work before{-1, -1, 0, 0};
    bool is_open = false;
    for (std::int32_t index = worker; index < schedule.count(); index += schedule.workers) {
      gemm_work const work = schedule.at(index);
      bool const is_inside = work.row < rows && work.column < columns;
      wrong += work.pieces == (is_inside ? 5 : 0) ? 0 : 1;
      wrong += schedule.is_first(work.column) == !is_open ? 0 : 1;
      wrong += is_open && (work.row != before.row || work.column != before.column + schedule.splits) ? 1 : 0;
      is_open = !schedule.is_last(work.column);
      before = work;
      if (is_inside) {
        ++visits[static_cast<std::size_t>(work.row * columns + work.column)];
      }
    }
    wrong += is_open ? 1 : 0;
  }
  for (int const count : visits) {
    wrong += count == 1 ? 0 : 1;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("a row schedule computes each tile once, and a worker stays with a row", "[host]") {
  for (std::int32_t const rows : {1, 2, 7, 32, 66, 70, 140}) {
    for (std::int32_t const columns : {1, 2, 3, 64, 65, 100}) {
      check_schedule(rows, columns, 66, 1000);
      check_schedule(rows, columns, 5, 2);
    }
  }
}
