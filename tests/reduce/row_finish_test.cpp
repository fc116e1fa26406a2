// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/reduce/arg_max.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/row_finish.hpp>
#include <tessera/view/array_view.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::message_of;

namespace {

using best_state = arg_max_reducer<float>::state_type;

/// A user's own: keeps the largest logit of each token.
struct keep_largest {
  array_view<float> largest;
  void operator()(std::int64_t, std::int64_t token, best_state const& state) const { largest[token] = state.value; }
};
struct without_row {
  void operator()(std::int64_t, best_state const&) const {}
};
struct with_values : keep_largest {
  std::vector<float> values;
};

}  // namespace

TEST_CASE("a finish of rows takes the state of its own reducer, and travels as bytes", "[host]") {
  STATIC_REQUIRE(RowFinish<keep_largest, best_state>);
  STATIC_REQUIRE_FALSE(RowFinish<keep_largest, lse_reducer<float>::state_type>);
  STATIC_REQUIRE_FALSE(RowFinish<without_row, best_state>);
  STATIC_REQUIRE_FALSE(RowFinish<with_values, best_state>);
  STATIC_REQUIRE_FALSE(RowFinish<int, best_state>);
  std::vector<float> largest(3, -1.0F);
  keep_largest const finish{largest};
  finish(0, 2, {7.0F, 11});
  CHECK(largest == std::vector<float>{-1.0F, -1.0F, 7.0F});
}

TEST_CASE("the finish that keeps nothing takes the state of any reducer and has no bytes of its own", "[host]") {
  STATIC_REQUIRE(RowFinish<keep_no_state, best_state>);
  STATIC_REQUIRE(RowFinish<keep_no_state, lse_reducer<float>::state_type>);
  STATIC_REQUIRE(std::is_empty_v<keep_no_state>);
  STATIC_REQUIRE(std::is_void_v<decltype(keep_no_state{}(0, 0, best_state{}))>);
}

TEST_CASE("the finish that keeps states has one for each token, or refuses the call", "[host]") {
  std::vector<best_state> states(3);
  keep_states<best_state> const finish{states};
  finish(0, 2, {7.0F, 11});
  CHECK(states[2].index == 11);
  CHECK(message_of([&] { check_finish("f", 3, finish); }) == "");
  CHECK(message_of([&] { check_finish("f", 4, finish); }) == "f: there are 3 states but 4 tokens");
  CHECK(message_of([&] {
          check_finish("f", 3, keep_states<best_state>{{nullptr, 3}});
        }) == "f: the states have no memory but 3 elements");
  CHECK(message_of([&] {
          check_finish("f", 3, keep_states<best_state>{{states.data(), {3}, {0}}});
        }) == "f: dimension 0 of the states has 3 elements with a stride of 0");
}
