// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <string>
#include <type_traits>

#include <tessera/concepts/refused_call.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

template <class T, class Label = int>
struct inputs {
  T const* values = nullptr;
  Label label = 0;
};
struct labelled : inputs<float, long> {};

struct serial {};
struct options {
  int level = 0;
  bool is_fast = false;
};
struct other_options {
  double rate = 0;
};

/// Takes a name, and nothing that is made of one.
struct location {
  location(char const* /*name*/) {}  // NOLINT(google-explicit-constructor): a conversion of its own
  location(int, int) {}
};

enum class chosen { function, types, braces };

template <class Executor, class T = int, class Label = int>
chosen run(Executor const&, inputs<T, Label> const&, options const&, location const&) {
  return chosen::function;
}
template <class Executor, class In = anything, class Options = options, class... More>
requires(!(MadeOrBraces<In, inputs> && IsFirst<options, Options> && IsFirst<location, More...>)) chosen
    run(Executor const&, In const&, Options const&, More const&...) {
  return chosen::types;
}
template <class... None>
chosen run(anything, anything, options const&, anything) {
  return chosen::braces;
}

}  // namespace

static_assert(Made<inputs<float>, inputs> && Made<labelled, inputs> && !Made<options, inputs> && !Made<int, inputs>);
static_assert(Made<inputs<float, long>, inputs, float> && !Made<inputs<float, long>, inputs, int>);
static_assert(MadeOrBraces<anything, inputs> && !Made<anything, inputs> && !MadeOrBraces<options, inputs>);
static_assert(IsFirst<location, char const*, int> && !IsFirst<location> && !IsFirst<location, int>);
static_assert(!never<> && !never<int, float>);

TEST_CASE("a function is called wherever it can be, and else what refuses", "[host]") {
  serial const exec;
  int const number = 3;
  float const real = 0.5F;
  options chosen_options;
  inputs<int> of_numbers{&number, 1};
  labelled of_reals;
  std::string const name = "here";

  CHECK(run(exec, of_numbers, chosen_options, location("here")) == chosen::function);
  CHECK(run(exec, of_reals, {.is_fast = true}, "here") == chosen::function);
  CHECK(run(exec, of_reals, {}, {1, 2}) == chosen::function);
  CHECK(run(exec, {&number, 2}, {}, name.c_str()) == chosen::function);
  CHECK(run(exec, {&number}, {2, true}, {1, 2}) == chosen::function);
  CHECK(run(exec, {.values = &number}, chosen_options, {"here"}) == chosen::function);

  CHECK(run(exec, chosen_options, of_numbers, "here") == chosen::types);
  CHECK(run(exec, of_numbers, other_options{}, "here") == chosen::types);
  CHECK(run(exec, of_numbers, chosen_options) == chosen::types);
  CHECK(run(of_numbers, chosen_options, "here") == chosen::types);
  CHECK(run(exec, of_numbers, {.level = 1}, name) == chosen::types);
  CHECK(run(exec, of_numbers, of_numbers, chosen_options, "here") == chosen::types);
  CHECK(run(exec, {&real, 2}, chosen_options, 1.5) == chosen::types);

  CHECK(run(exec, {&real, 2}, {.is_fast = true}, "here") == chosen::braces);
  CHECK(run(exec, {&number, 2}, {}, {1, 2, 3}) == chosen::braces);
}
