// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/program/loss/logit_rows.cuh>
#include <tessera/reduce/maximum.hpp>
#include <tessera/reduce/row_fold.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "support/row_states.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

constexpr int registers = 96;  // registers of 192 columns

/// A warp for each 16 rows, which takes 192 columns at a time from registers as a matrix product leaves them. A row has
/// one kept state, or one for each of its two lanes.
template <class R, int States>
struct fold_matrix {
  static constexpr int lanes = 32;
  using state_type = typename R::state_type;
  struct scratch_type {
    state_type of_row[16][States];
  };

  matrix_view<float const> values;  ///< a multiple of 16 rows
  float scale;
  array_view<state_type> states;  ///< states of rows

  __device__ void operator()(cuda_warp const& group, std::int64_t which, scratch_type& scratch) const {
    using rows = logit_rows<2 * registers>;
    warpgroup_lane const lane{group.lane};
    int const own = rows::own_row(lane);
    auto const end = static_cast<std::int32_t>(values.extent(1));
    if (group.lane < 16) {
      for (state_type& state : scratch.of_row[group.lane]) {
        state = R{}.identity();
      }
    }
    __syncwarp();
    for (std::int32_t first = 0; first < end; first += rows::columns) {
      rows::sum_tile sums;
      rows::each_with_row(lane, sums, [&](int row, int column, float& sum) {
        sum = first + column < end ? values(which * 16 + row, first + column) : -infinity;
      });
      rows::row_values<float> largest;
      rows::each_row(
          lane, [](int, float& most) { most = -infinity; }, largest);
      rows::reduce_rows(lane, maximum_reducer<float>{}, sums, largest);
      state_type const found = rows::reduce_rows(lane, R{}, sums, {first, end, scale}, largest, scratch.of_row[own]);
      state_type total = scratch.of_row[own][0];
      row_fold<R>::add(total, found, tessera::detail::fast_power{});
      __syncwarp();
      if (group.lane % 4 < 2) {
        row_fold<R>::keep(scratch.of_row[own][0], total);
      }
      __syncwarp();
    }
    if (group.lane < 16) {
      state_type state = scratch.of_row[group.lane][0];
      for (int i = 1; i < States; ++i) {
        row_fold<R>::merge(state, scratch.of_row[group.lane][i], tessera::detail::fast_power{});
      }
      states[which * 16 + group.lane] = state;
    }
  }
};

/// Rows of one length.
template <class R, int States>
void check_rows(std::vector<std::vector<float>> const& rows, float scale) {
  auto const columns = static_cast<std::int64_t>(rows[0].size());
  std::vector<float> values;
  auto const count = divide_up(static_cast<std::int64_t>(rows.size()), std::int64_t{16}) * 16;
  for (std::int64_t row = 0; row < count; ++row) {
    std::vector<float> const& own = rows[static_cast<std::size_t>(row) % rows.size()];
    values.insert(values.end(), own.begin(), own.end());
  }
  tessera::cuda const exec;
  auto const given = to_device(exec, values);
  buffer<typename R::state_type> states(exec, count);
  fold_matrix<R, States> const program{{given.data(), {count, columns}}, scale, states.view()};
  exec.run(program, count / 16);
  auto const found = to_host(exec, states);
  exec.wait();
  for (std::size_t row = 0; row < found.size(); ++row) {
    CAPTURE(row % rows.size(), columns, scale, States);
    CHECK(difference_of<R>(found[row], pushed<R>(rows[row % rows.size()], scale)) == "");
  }
}

template <class R, int States = 1>
void check_all() {
  auto rows = awkward_rows();
  while (!rows.empty()) {
    std::size_t const size = rows.back().size();
    auto const first = std::find_if(rows.begin(), rows.end(), [&](auto const& row) { return row.size() == size; });
    std::vector<std::vector<float>> const of_size(first, rows.end());
    rows.erase(first, rows.end());
    for (float const scale : {1.0F, 0.7F}) {
      check_rows<R, States>(of_size, scale);
      // Far rows make their warp take another way: so those that are not are taken by themselves, too.
      auto near = of_size;
      std::erase_if(near, [](auto const& row) {
        return std::any_of(row.begin(), row.end(), [](float value) { return value > 1e6F || value < -1e6F; });
      });
      check_rows<R, States>(near, scale);
    }
  }
}

}  // namespace

TEST_CASE("a warp folds rows in registers to what push() makes of them", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_all<lse_reducer<float>>();
  check_all<entropy_reducer<float>>();
  check_all<arg_max_reducer<float>>();
  check_all<sum_reducer<float>>();
  check_all<paired_reducer<entropy_reducer<float>, paired_reducer<arg_max_reducer<float>, sum_reducer<float>>>>();
}

TEST_CASE("a warp pushes values into reducers that say nothing of rows, alone or in pairs", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_all<top_four, 1>();
  check_all<top_four, 2>();
  check_all<pushed_entropy, 1>();
  check_all<pushed_entropy, 2>();
  check_all<many_sums<2>, 2>();
  check_all<many_sums<40>>();  // more than registers hold
  check_all<paired_reducer<lse_reducer<float>, top_four>>();
  check_all<paired_reducer<lse_reducer<float>, pushed_entropy>, 2>();
  check_all<paired_reducer<many_sums<3>, paired_reducer<sum_reducer<float>, top_four>>, 1>();
  check_all<paired_reducer<many_sums<3>, paired_reducer<sum_reducer<float>, top_four>>, 2>();
}
