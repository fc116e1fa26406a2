// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/reduce/mean.hpp>
#include <tessera/testing/laws/reducer.hpp>

#include "support/catch.hpp"

using tessera::counted_sum;
using tessera::mean_reducer;

namespace {

constexpr float mean_of_three() {
  mean_reducer<float> const reducer;
  auto state = reducer.identity();
  auto other = reducer.identity();
  reducer.push(state, 1.0F);
  reducer.push(state, 2.0F);
  reducer.push(other, 6.0F);
  reducer.merge(state, other);
  return reducer.value(state);
}
static_assert(mean_of_three() == 3.0F);

}  // namespace

TEST_CASE("means keep the laws", "[host]") {
  auto const same = [](counted_sum<float> const& a, counted_sum<float> const& b) {
    return a.count == b.count && tessera::testing::is_close(a.sum, b.sum, 1e-6);
  };
  CHECK(tessera::testing::check_laws<mean_reducer<float>>({0.1F, 0.2F, -5.0F, 7.5F}, same).text().empty());
}

TEST_CASE("the mean of nothing is zero", "[host]") {
  mean_reducer<double> const reducer;
  CHECK(reducer.value(reducer.identity()) == 0.0);
}

TEST_CASE("pieces of different lengths have their right weight in the mean", "[host]") {
  CHECK(mean_of_three() == 3.0F);
}
