// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/core/bits.hpp>
#include <tessera/reduce/maximum.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/testing/laws/reducer.hpp>

#include "support/catch.hpp"

using tessera::Reducer;
using tessera::testing::check_laws;

namespace reducer_test {

/// A user's own Reducer, as the concept's header shows it.
struct longest {
  using state_type = int;
  using input_type = int;
  TESSERA_FN constexpr state_type identity() const { return 0; }
  TESSERA_FN constexpr void push(state_type& state, input_type x) const { state = tessera::max(state, x); }
  TESSERA_FN constexpr void merge(state_type& into, state_type other) const { push(into, other); }
};

struct starting_at_one : longest {
  constexpr int identity() const { return 1; }
  constexpr void push(int& state, int x) const { state += x; }
  constexpr void merge(int& into, int other) const { into += other; }
};

struct subtracting : longest {
  constexpr void push(int& state, int x) const { state -= x; }
  constexpr void merge(int& into, int other) const { into -= other; }
};

struct averaging : longest {
  constexpr void merge(int& into, int other) const { into = (into + other) / 2; }
};

/// The last input: associative, and zero is its neutral element, but the order matters.
struct latest : longest {
  constexpr void push(int& state, int x) const { merge(state, x); }
  constexpr void merge(int& into, int other) const { into = other == 0 ? into : other; }
};

struct doubling_push : longest {
  constexpr void push(int& state, int x) const { state += 2 * x; }
  constexpr void merge(int& into, int other) const { into = tessera::max(into, other); }
};

/// Adds, two values at a time.
struct adding_pairs : longest {
  constexpr void push(int& state, int x) const { state += x; }
  constexpr void merge(int& into, int other) const { into += other; }
  constexpr int of_pair(int a, int b) const { return a + b; }
  constexpr void push_pair(int& state, int a, int b) const { state += a + b; }
};
/// Pushes pairs, but does not say what the state of a pair is: lanes give it one value at a time.
struct pushing_pairs : longest {
  constexpr void push_pair(int& state, int a, int b) const { state += a + b; }
};
struct forgetting_the_second : adding_pairs {
  constexpr int of_pair(int a, int) const { return a; }
  constexpr void push_pair(int& state, int a, int) const { state += a; }
};

struct without_input {
  using state_type = int;
};

static_assert(Reducer<longest>);
static_assert(Reducer<latest>, "laws are not for the compiler to see");
static_assert(tessera::PairReducer<adding_pairs> && !tessera::PairReducer<longest>);
static_assert(Reducer<pushing_pairs> && !tessera::PairReducer<pushing_pairs>);
static_assert(tessera::takes_any_order<tessera::maximum_reducer<float>> && !tessera::takes_any_order<longest>);
static_assert(!Reducer<int>);
static_assert(!Reducer<without_input>);

}  // namespace reducer_test

using namespace reducer_test;

TEST_CASE("a user's own reducer keeps the laws", "[host]") {
  auto const report = check_laws<longest>({3, 1, 4, 1, 5});
  INFO(report.text());
  CHECK(report.is_empty());
}

TEST_CASE("a reducer whose identity is not neutral is caught", "[host]") {
  auto const report = check_laws<starting_at_one>({3, 1, 4});
  CHECK(report.mentions("identity on the left changes nothing: at input 0"));
  CHECK(report.mentions("identity on the right changes nothing"));
}

TEST_CASE("a merge that is not associative is caught", "[host]") {
  CHECK(check_laws<averaging>({30, 10, 41}).mentions("merge is associative"));
  CHECK(check_laws<subtracting>({3, 1, 4}).mentions("merge is associative"));
}

TEST_CASE("a merge that depends on the order is caught, and nothing else is", "[host]") {
  auto const report = check_laws<latest>({3, 1, 4});
  REQUIRE(report.failures().size() == 1);
  CHECK(report.mentions("merge commutes"));
}

TEST_CASE("a push that differs from merging is caught", "[host]") {
  CHECK(check_laws<doubling_push>({3, 1, 4}).mentions("push is merge with the state of one input"));
}

TEST_CASE("each broken law is reported once, with its first counterexample", "[host]") {
  auto const report = check_laws<starting_at_one>({3, 1, 4, 1, 5, 9, 2, 6});
  CHECK(report.failures().size() <= 7);
  CHECK_FALSE(report.mentions("at input 7"));
}

TEST_CASE("pairs of which a value is lost are caught", "[host]") {
  CHECK(check_laws<adding_pairs>({3, -5, 7}).text().empty());
  CHECK(check_laws<forgetting_the_second>({3, -5, 7}).mentions("of_pair is the state of two values"));
  CHECK(check_laws<forgetting_the_second>({3, -5, 7}).mentions("push_pair pushes two values"));
}
