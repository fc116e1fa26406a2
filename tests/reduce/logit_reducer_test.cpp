// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/reduce/sum.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// A Reducer of pairs of integers, which are no logits.
struct of_pairs {
  struct pair {
    std::int32_t a;
    std::int32_t b;
  };
  using state_type = std::int32_t;
  using input_type = pair;
  using value_type = std::int32_t;
  TESSERA_FN constexpr state_type identity() const { return 0; }
  TESSERA_FN constexpr void push(state_type& state, input_type input) const { state += input.a * input.b; }
  TESSERA_FN constexpr void merge(state_type& state, state_type const& other) const { state += other; }
  TESSERA_FN constexpr value_type value(state_type const& state) const { return state; }
};

/// A Reducer of floats that has a number of its own.
struct scaled_sum : sum_reducer<float> {
  float scale = 1.0F;
};

using lse = lse_reducer<float>;
using entropy = entropy_reducer<float>;
using likeliest = arg_max_reducer<float>;

}  // namespace

TEST_CASE("a loss takes reducers of logits that have no numbers of their own", "[host]") {
  STATIC_REQUIRE(LogitReducer<lse>);
  STATIC_REQUIRE(LogitReducer<entropy>);
  STATIC_REQUIRE(LogitReducer<likeliest>);
  STATIC_REQUIRE(LogitReducer<sum_reducer<float>>);
  STATIC_REQUIRE(LogitReducer<paired_reducer<lse, likeliest>>);
  STATIC_REQUIRE(Reducer<of_pairs>);
  STATIC_REQUIRE_FALSE(LogitReducer<of_pairs>);
  STATIC_REQUIRE_FALSE(LogitReducer<scaled_sum>);
  STATIC_REQUIRE_FALSE(LogitReducer<float>);
}

TEST_CASE("a loss adds a log-sum-exp to a reducer that has none", "[host]") {
  STATIC_REQUIRE(std::is_same_v<loss_reducer<lse>, lse>);
  STATIC_REQUIRE(std::is_same_v<loss_reducer<entropy>, entropy>);
  STATIC_REQUIRE(std::is_same_v<loss_reducer<likeliest>, paired_reducer<lse, likeliest>>);
  using both = paired_reducer<sum_reducer<float>, paired_reducer<likeliest, lse>>;
  STATIC_REQUIRE(std::is_same_v<loss_reducer<both>, both>);
  using made = loss_reducer<sum_reducer<float>>;
  made const reducer{};
  auto state = reducer.identity();
  double exponentials = 0;
  for (float const logit : {0.5F, -2.0F, 3.0F}) {
    push_indexed(reducer, state, indexed_value<float>{logit, 0});
    exponentials += std::exp(static_cast<double>(logit));
  }
  CHECK(lse{}.value(state_of<lse>(reducer, state)) == Approx(std::log(exponentials)).epsilon(1e-6));
  CHECK(state_of<sum_reducer<float>>(reducer, state) == Approx(1.5F));
}
