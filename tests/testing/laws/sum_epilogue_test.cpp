// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/testing/laws/sum_epilogue.hpp>
#include <tessera/view/array_view.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera::testing::check_epilogue_laws;

namespace {

constexpr std::int64_t rows = 5;
constexpr std::int64_t columns = 7;

/// Adds each row up, in the order in which sums come.
struct add_up_rows {
  array_view<float> totals;
  void operator()(std::int64_t row, std::int64_t, float sum) const { totals[row] = totals[row] * 0.5F + sum; }
};

/// Keeps the last sum of each row.
struct keep_last {
  array_view<float> last;
  void operator()(std::int64_t row, std::int64_t, float) const { last[row] = 1.0F; }
};

std::vector<float> some_sums() {
  std::vector<float> sums;
  for (int i = 0; i < rows * columns; ++i) {
    sums.push_back(static_cast<float>(i) * 0.3F - 4.0F);
  }
  return sums;
}

}  // namespace

TEST_CASE("an epilogue that depends on the order of sums, or writes one address for two, is caught", "[host]") {
  std::vector<float> const memory(static_cast<std::size_t>(rows), -99.0F);
  auto const in_order = [](array_view<float> totals) { return add_up_rows{totals}; };
  CHECK(check_epilogue_laws(memory, in_order, some_sums(), columns).mentions("sums come in any order"));
  auto const last = [](array_view<float> totals) { return keep_last{totals}; };
  auto const report = check_epilogue_laws(memory, last, some_sums(), columns);
  CHECK(report.mentions("no two sums write one address"));
  CHECK_FALSE(report.mentions("sums come in any order"));
}
