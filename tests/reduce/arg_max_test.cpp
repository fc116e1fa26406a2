// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <vector>

#include <tessera/reduce/arg_max.hpp>
#include <tessera/testing/laws/reducer.hpp>

#include "support/catch.hpp"

using tessera::arg_max_reducer;
using tessera::indexed_value;

namespace {

struct same_index {
  bool operator()(indexed_value<float> const& a, indexed_value<float> const& b) const { return a.index == b.index; }
};

}  // namespace

TEST_CASE("arg-max keeps the laws, with equal values, infinities and NaNs", "[host]") {
  using reducer = arg_max_reducer<float>;
  std::vector<indexed_value<float>> const values{{1, 5}, {3, 2}, {3, 1}, {2, 0}, {3, 9}};
  CHECK(tessera::testing::check_laws<reducer>(values, same_index{}).text().empty());
  std::vector<indexed_value<float>> const odd{{-tessera::infinity, 4}, {-tessera::infinity, 2}, {NAN, 1}};
  CHECK(tessera::testing::check_laws<reducer>(odd, same_index{}).text().empty());
}

TEST_CASE("arg-max gives the first of the largest values, and -1 for nothing", "[host]") {
  arg_max_reducer<float> const reducer;
  auto state = reducer.identity();
  CHECK(state.index == -1);
  reducer.push(state, {NAN, 0});
  CHECK(state.index == -1);
  reducer.push(state, {-tessera::infinity, 7});
  CHECK(state.index == 7);
  reducer.push(state, {2, 6});
  reducer.push(state, {2, 3});
  reducer.push(state, {1, 0});
  CHECK(state.index == 3);
}
