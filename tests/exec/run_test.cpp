// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/view/array_view.hpp>

#include "support/catch.hpp"

namespace run_test {

/// Adds one to each value; a group has 32 of them.
struct increase {
  static constexpr int lanes = 32;
  struct scratch_type {};
  tessera::array_view<std::int32_t> values;

  std::int64_t groups() const { return (values.size() + lanes - 1) / lanes; }
  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      if (which * lanes + lane < values.size()) {
        values[which * lanes + lane] += 1;
      }
    }
  }
};

/// A call that is no program and may be empty.
struct noted_call {
  std::vector<std::string>* ran;
  bool empty = false;
  [[nodiscard]] bool is_empty() const { return empty; }
};
template <class Exec>
void run_portably(Exec const&, noted_call const& call) {
  call.ran->push_back("portable");
}

/// An executor with a list of models; each refuses, or takes the call and notes its own name.
struct chooser : tessera::cpu {};
template <int Number, bool Takes>
struct model {
  static constexpr char const* name = Number == 1 ? "first" : Number == 2 ? "second" : "third";
  template <class Exec, class Call>
  static constexpr tessera::refusal refuses_types() {
    return {};
  }
  static tessera::refusal refuses(chooser const&, noted_call const&) {
    return tessera::unless(Takes, "this one takes nothing");
  }
  static void run(chooser const&, noted_call const& call) { call.ran->push_back(name); }
};

struct choice_observer : tessera::observer {
  void chose(tessera::program_choice const& what) override { lines.push_back(what.text()); }
  std::vector<std::string> lines;
};

}  // namespace run_test

template <>
struct tessera::models_for<run_test::chooser, run_test::noted_call> {
  using type = model_list<run_test::model<1, false>, run_test::model<2, true>, run_test::model<3, true>>;
};

TEST_CASE("a program runs with the groups that it says, on each executor", "[host]") {
  for (std::size_t const count : {std::size_t{0}, std::size_t{1}, std::size_t{31}, std::size_t{32}, std::size_t{33}}) {
    std::vector<std::int32_t> values(count, 5);
    tessera::run(tessera::cpu{.threads = 1}, run_test::increase{values});
    CHECK(values == std::vector<std::int32_t>(count, 6));
    tessera::run(tessera::testing::adversary{}, run_test::increase{values});
    CHECK(values == std::vector<std::int32_t>(count, 7));
  }
}

TEST_CASE("of several models the first that takes a call runs and the observer hears of it", "[host]") {
  std::vector<std::string> ran;
  run_test::choice_observer watching;
  run_test::chooser exec;
  exec.options.watched_by = &watching;
  tessera::run(exec, run_test::noted_call{&ran});
  CHECK(ran == std::vector<std::string>{"second"});
  REQUIRE(watching.lines.size() == 1);
  CHECK_THAT(watching.lines[0], tessera_test::contains("noted_call: second"));
  tessera::run(tessera::cpu{.threads = 1}, run_test::noted_call{&ran});
  CHECK(ran.back() == "portable");
}

TEST_CASE("of an empty call nothing runs and nobody is told", "[host]") {
  std::vector<std::string> ran;
  run_test::choice_observer watching;
  run_test::chooser exec;
  exec.options.watched_by = &watching;
  tessera::run(exec, run_test::noted_call{&ran, true});
  std::vector<std::int32_t> none;
  tessera::run(tessera::cpu{.threads = 1, .options = {.watched_by = &watching}}, run_test::increase{none});
  CHECK(ran.empty());
  CHECK(watching.lines.empty());
}
