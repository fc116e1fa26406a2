// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/gemm/row_reduction.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/reduce/arg_max.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/minimum_maximum.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "algorithm/gemm/row_samples.hpp"
#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("rows of all lengths have the log-sum-exps of a loop in double", "[host]") {
  for (std::int64_t const columns : {0, 1, 7, 8, 31, 255, 256, 257, 1023, 8191, 8192, 8193, 20000}) {
    check_log_sum_exps<float>(cpu{.threads = 1}, 3, columns, false);
    check_log_sum_exps<bfloat16>(cpu{.threads = 1}, 3, columns, false);
    check_log_sum_exps<bfloat16>(cpu{.threads = 1}, 3, columns, true);
  }
  check_log_sum_exps<float>(cpu{.threads = 1}, 0, 100, false);
}

TEST_CASE("rows are reduced to their first largest value, also where they are in several pieces", "[host]") {
  for (std::int64_t const columns : {1, 9, 300, 8192, 16385}) {
    check_arg_max(cpu{.threads = 1}, 5, columns);
  }
}

TEST_CASE("reducing rows keeps the rules for programs, and all executors give the same bits", "[host][threads]") {
  for (std::int64_t const columns : {100, 9000}) {
    row_samples<bfloat16> const samples(6, columns, false);
    auto const expected = reduced<lse_reducer<float>>(cpu{.threads = 1}, samples);
    for (auto const& found : {reduced<lse_reducer<float>>(cpu{.threads = 2}, samples),
                              reduced<lse_reducer<float>>(testing::adversary{.seed = 5}, samples)}) {
      REQUIRE(found.size() == expected.size());
      for (std::size_t row = 0; row < found.size(); ++row) {
        CHECK(found[row].largest == expected[row].largest);
        CHECK(found[row].scaled == expected[row].scaled);
      }
    }
  }
}

TEST_CASE("NaNs of a row reach its log-sum-exp, and no other row's", "[host]") {
  row_samples<float> samples(3, 100, false);
  samples.values[150] = std::nanf("");
  auto const found = reduced<lse_reducer<float>>(cpu{.threads = 1}, samples);
  lse_reducer<float> const reducer;
  CHECK(std::isfinite(reducer.value(found[0])));
  CHECK(std::isnan(reducer.value(found[1])));
  CHECK(std::isfinite(reducer.value(found[2])));
}

TEST_CASE("reductions of rows refuse what cannot be", "[host]") {
  using ranges = row_reduction<minimum_maximum_reducer<float>>;
  cpu const exec{.threads = 1};
  std::vector<float> values(2 * 9000);
  std::vector<interval<float>> found(2);
  matrix_view<float> const matrix(values.data(), {2, 9000});
  buffer<std::byte> memory(exec, ranges::plan(exec, 2, 9000).bytes());
  workspace const space(ranges::plan(exec, 2, 9000), memory);
  auto const complaint = [&](matrix_view<float> of, array_view<interval<float>> to, workspace const& in) {
    return message_of([&] { ranges::reduce(exec, {}, of, to, in); });
  };
  CHECK(complaint(matrix, found, space).empty());
  CHECK_THAT(complaint(matrix, array_view<interval<float>>(found.data(), 1), space),
             contains("row_reduction.reduce: there are 1 states but the values have 2 rows"));
  workspace const none(ranges::plan(exec, 2, 8192), {});
  CHECK_THAT(complaint(matrix, found, none), contains("the workspace is of a plan of 0 bytes but 2 rows of 9000 columns"
                                                      " need "));
  CHECK_THAT(complaint({nullptr, {2, 9000}}, found, space), contains("the values have no memory but 18000 elements"));
  CHECK_THAT(
      complaint({values.data(), {0, std::int64_t{1} << 31}}, array_view<interval<float>>(found.data(), 0), space),
      contains("rows have 2147483648 columns but may have 2147483647"));
  CHECK_THAT(message_of([&] { static_cast<void>(ranges::plan(exec, -1, 5)); }), contains("the extents are -1 and 5"));
}
