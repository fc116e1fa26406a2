// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <unistd.h>
#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/explain.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera_test::contains;

namespace {

/// An executor with two programs for a call: none for odd counts.
struct other_executor : cpu {};
struct counted_call {
  static constexpr char const* function = "counted";
  std::int64_t count;
  std::vector<std::string>* ran;
};
template <class Executor>
void run_portably(Executor const&, counted_call const& call) {
  call.ran->push_back("portable");
}
template <int Most>
struct up_to {
  static constexpr char const* name = Most == 4 ? "up_to_4" : "up_to_8";
  template <class Executor, class Call>
  static constexpr refusal refuses_types() {
    return {};
  }
  static refusal refuses(other_executor const&, counted_call const& call) {
    return first_of(unless(call.count % 2 == 0, "the count is odd"),
                    unless(call.count <= Most, "the count", call.count, Most == 4 ? "at most 4" : "at most 8"));
  }
  static void run(other_executor const&, counted_call const& call) { call.ran->push_back(name); }
};
/// What a function writes to stderr.
template <class F>
std::string what_is_said(F const& function) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  std::fflush(stderr);
  int const kept = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  function();
  std::fflush(stderr);
  dup2(kept, STDERR_FILENO);
  close(kept);
  std::string text(static_cast<std::size_t>(std::ftell(file)), ' ');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}
/// A program that no type has: its run() would not compile.
struct never_compiled {
  static constexpr char const* name = "never_compiled";
  template <class Executor, class Call>
  static constexpr refusal refuses_types() {
    return refusal{"there is no such type"};
  }
};

}  // namespace

template <>
struct tessera::models_for<other_executor, counted_call> {
  using type = model_list<never_compiled, up_to<4>, up_to<8>>;
};

TEST_CASE("the first program that takes a call runs, and explain says the same without running it", "[host]") {
  std::vector<std::string> ran;
  other_executor const exec;
  other_executor quiet;
  quiet.options.says_slower_programs = false;
  auto const program_of = [&](std::int64_t count) {
    auto const told = explain(exec, counted_call{count, &ran});
    REQUIRE(ran.empty());
    run(quiet, counted_call{count, &ran});
    REQUIRE(ran.size() == 1);
    std::string const name = ran.front();
    ran.clear();
    REQUIRE(told.choices.size() == 1);
    CHECK(told.choices[0].call == "counted");
    CHECK(told.choices[0].is_portable == (name == "portable"));
    CHECK(std::string(told.choices[0].program).substr(0, name.size()) == name);
    CHECK(told.is_fast() == (name != "portable"));
    return name;
  };
  CHECK(program_of(0) == "up_to_4");
  CHECK(program_of(4) == "up_to_4");
  CHECK(program_of(6) == "up_to_8");
  CHECK(program_of(8) == "up_to_8");
  CHECK(program_of(10) == "portable");
  CHECK(program_of(3) == "portable");
  CHECK(
      explain(exec, counted_call{10, &ran}).text() ==
      "counted: portable program, because never_compiled: there is no such type; up_to_4: the count is 10 but must be "
      "at most 4; up_to_8: the count is 10 but must be at most 8\n");
  CHECK(explain(exec, counted_call{6, &ran}).text() == "counted: up_to_8\n");
}

TEST_CASE("an executor that refuses slower programs runs none, and those without faster ones run", "[host]") {
  std::vector<std::string> ran;
  other_executor exec;
  exec.options.refuses_slower_programs = true;
  CHECK_THROWS_AS(run(exec, counted_call{3, &ran}), slower_program);
  CHECK_THROWS_AS(run(exec, counted_call{3, &ran}), error);
  CHECK(ran.empty());
  run(exec, counted_call{8, &ran});
  CHECK(ran == std::vector<std::string>{"up_to_8"});
  run(cpu{.options = {.refuses_slower_programs = true}}, counted_call{3, &ran});
  CHECK(ran.back() == "portable");
}

TEST_CASE("a slower program says so on stderr, once for each type of call, unless it is told not to", "[host]") {
  std::vector<std::string> ran;
  other_executor const exec;
  other_executor silent;
  silent.options.says_slower_programs = false;
  counted_call const call{10, &ran};
  CHECK(what_is_said([&] { run(silent, call); }).empty());
  CHECK(what_is_said([&] { static_cast<void>(explain(exec, call)); }).empty());
  CHECK(what_is_said([&] { run(exec, counted_call{8, &ran}); }).empty());  // this one is fast
  CHECK(what_is_said([&] { run(cpu{}, call); }).empty());                  // the host has no faster one
  CHECK_THAT(what_is_said([&] { run(exec, call); }),
             contains("tessera: counted: portable program, because never_compiled: there is no such type; up_to_4: the "
                      "count is 10 but must be at most 4; up_to_8: the count is 10 but must be at most 8 (said once"));
  CHECK(what_is_said([&] { run(exec, call); }).empty());
  CHECK(ran.size() == 5);
}

TEST_CASE("explaining neither reads nor writes, and checks arguments", "[host]") {
  cpu const exec;
  std::vector<float> const inputs(6, 1.0F);
  std::vector<float> outputs(4, -1.0F);
  auto const call = [&](std::int64_t depth) {
    return explain(exec, [&](auto const& dry) {
      linear<float>::forward(dry, {inputs.data(), {2, depth}}, {inputs.data(), {2, 3}},
                             matrix_view<float>(outputs.data(), {2, 2}));
      dry.clear(outputs);
      dry.copy(inputs, array_view<float>(outputs.data(), 6));
    });
  };
  CHECK(call(3).text() == "linear.forward: portable program\n");
  CHECK(outputs == std::vector<float>(4, -1.0F));
  CHECK_THROWS_AS(call(2), shape_error);
}
