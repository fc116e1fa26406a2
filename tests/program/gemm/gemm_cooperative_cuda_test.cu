// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/map/plain_sum.hpp>
#include <tessera/program/gemm/gemm_cooperative.cuh>
#include <tessera/program/gemm/gemm_pingpong.cuh>
#include <tessera/program/gemm/store_sums.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/gemm_reference.hpp"

using namespace tessera;
using tessera_test::operand_samples;

namespace {

constexpr warpgroup_gemm_policy pair_policy{128, 2, 4, 8, 24, 240};
constexpr warpgroup_gemm_policy single_policy{192, 1, 4, 8, 24, 240};
constexpr warpgroup_gemm_policy pair_turns_policy{192, 2, 5, 8, 24, 240};
constexpr warpgroup_gemm_policy single_turns_policy{64, 1, 4, 8, 24, 240};

/// The product a b^T of 300 x 500 over a depth of six and a half k-tiles.
struct small_problem {
  static constexpr std::int64_t rows = 300;
  static constexpr std::int64_t columns = 500;
  static constexpr std::int64_t depth = 416;
  tessera::cuda exec;
  std::vector<bfloat16> a = operand_samples<bfloat16>(rows * depth, 1);
  std::vector<bfloat16> b = operand_samples<bfloat16>(columns * depth, 2);
  buffer<bfloat16> device_a{exec, rows* depth};
  buffer<bfloat16> device_b{exec, columns* depth};

  small_problem() {
    exec.copy(a, device_a);
    exec.copy(b, device_b);
  }
  template <class Program>
  tensor_map a_map() const {
    return make_tensor_map("test", matrix_view<bfloat16 const>(device_a.data(), {rows, depth}), {128, Program::depth});
  }
  template <class Program>
  tensor_map b_map() const {
    return make_tensor_map("test", matrix_view<bfloat16 const>(device_b.data(), {columns, depth}),
                           {Program::b_box_rows, Program::depth});
  }
  /// A sum over the k-tiles of 64 in a list.
  double sum(std::int64_t row, std::int64_t column, std::vector<std::int32_t> const& k_tiles) const {
    double total = 0;
    for (std::int32_t const k_tile : k_tiles) {
      for (std::int64_t k = 64 * k_tile; k < std::min(depth, 64 * (std::int64_t{k_tile} + 1)); ++k) {
        total += static_cast<double>(load(a[static_cast<std::size_t>(row * depth + k)])) *
                 static_cast<double>(load(b[static_cast<std::size_t>(column * depth + k)]));
      }
    }
    return total;
  }
};

/// Checks a schedule in which each tile has its own k-tiles, the longest list first; one tile has none, and one is not
/// in the schedule.
template <class Program, class Epilogue>
void check_lists(Epilogue const& make_epilogue) {
  small_problem const problem;
  using program = Program;
  if (!problem.exec.template has<program>()) {
    WARN("not compiled for this device");
    return;
  }
  std::vector<std::int32_t> const list{0, 1, 2, 3, 4, 5, 6, 6, 0, 3};
  std::vector<gemm_work_item> const work_items{{0, 1, 0, 7}, {1, 0, 7, 2}, {0, 2, 9, 1},
                                               {0, 0, 0, 0}, {1, 1, 2, 4}, {1, 2, 4, 1}};
  buffer<std::int32_t> device_list(problem.exec, 10);
  buffer<gemm_work_item> device_work_items(problem.exec, 6);
  std::vector<bfloat16> found(problem.rows * 504, tessera::store<bfloat16>(-77.0F));
  buffer<bfloat16> outputs(problem.exec, problem.rows * 504);
  problem.exec.copy(list, device_list);
  problem.exec.copy(work_items, device_work_items);
  problem.exec.copy(found, outputs);
  std::int64_t const extents[2] = {problem.rows, 504};
  matrix_view<bfloat16> const target(outputs.data(), extents);
  listed_schedule const schedule{device_work_items.data(), 6, device_list.data()};
  program const whole{problem.template a_map<program>(), problem.template b_map<program>(), schedule,
                      make_epilogue(target)};
  problem.exec.run(whole, 2 * program::blocks_per_cluster);  // two clusters share the work
  problem.exec.copy(outputs, found);
  problem.exec.wait();
  std::int64_t wrong = 0;
  for (std::int64_t row = 0; row < problem.rows; ++row) {
    for (std::int64_t column = 0; column < 504; ++column) {
      double expected = -77;
      for (gemm_work_item const& work : work_items) {
        if (row / program::rows == work.row && column / program::columns == work.column) {
          std::vector<std::int32_t> const k_tiles(list.begin() + work.first, list.begin() + work.first + work.k_tiles);
          expected = column < problem.columns ? problem.sum(row, column, k_tiles) : 0;
        }
      }
      double const got = static_cast<double>(load(found[static_cast<std::size_t>(row * 504 + column)]));
      wrong += std::fabs(got - expected) <= 0.004 * std::fabs(expected) + 1e-3 ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

using store_boxes = store_sums_by_boxes<bfloat16, plain_sum>;
using store_directly = store_sums_directly<bfloat16, plain_sum>;

store_boxes by_boxes(matrix_view<bfloat16> target) {
  return {{make_tensor_map("test", target, {store_boxes::box_rows, store_boxes::box_columns}), 300, 504, {}}};
}
store_directly directly(matrix_view<bfloat16> target) {
  return {target, {}};
}

}  // namespace

TEST_CASE("tiles can be summed over lists of k-tiles, also empty ones", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_lists<gemm_cooperative<bfloat16, listed_schedule, store_boxes, pair_policy>>(by_boxes);
  check_lists<gemm_cooperative<bfloat16, listed_schedule, store_boxes, single_policy>>(by_boxes);
}

TEST_CASE("so they can by warpgroups that take turns", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_lists<gemm_pingpong<bfloat16, listed_schedule, store_directly, pair_turns_policy>>(directly);
  check_lists<gemm_pingpong<bfloat16, listed_schedule, store_directly, single_turns_policy>>(directly);
}
