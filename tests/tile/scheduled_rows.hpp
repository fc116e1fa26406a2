// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A program that walks through a row_schedule, as each of its workers does.
#pragma once

#include <cstdint>

#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/row_schedule.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera_test {

using namespace tessera;

/// Writes for each tile who makes it: the worker, the split and the tiles of the split before this one. A group is a
/// worker.
struct scheduled_rows {
  static constexpr int lanes = 32;
  struct scratch_type {};
  row_schedule schedule;
  matrix_view<std::int32_t> made;  ///< rows x columns of tiles

  TESSERA_FN static constexpr std::int32_t mark(std::int32_t worker, row_split const& part) {
    return 1 + 1000 * (10 * worker + part.split) + part.before;
  }
  template <class G>
  TESSERA_FN void operator()(G const& group, std::int64_t worker, scratch_type&) const {
    auto const own = static_cast<std::int32_t>(worker);
    for (std::int32_t index = own; index < schedule.count(); index += schedule.workers) {
      row_split const part = schedule.split_at(index);
      std::int32_t const column = schedule.at(index).column;
      for (int lane : group) {
        if (is_first(lane) && part.is_there) {
          made(part.row, column) += mark(own, part);
        }
      }
    }
  }
};

}  // namespace tessera_test
