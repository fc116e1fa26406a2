// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/exec/execution_options.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"

namespace execution_options_test {

/// Notes what it is told, one line for each.
struct line_observer : tessera::observer {
  void launched(tessera::launch const& what) override {
    lines.push_back(std::string(what.program) + " " + std::to_string(what.groups) + " x " + std::to_string(what.lanes));
  }
  void moved(std::int64_t bytes) override { lines.push_back(std::to_string(bytes) + " bytes"); }
  std::vector<std::string> lines;
};

template <int Lanes>
struct counts_calls {
  static constexpr int lanes = Lanes;
  struct scratch_type {};
  std::int64_t* calls;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t, scratch_type&) const {
    for (int lane : group) {
      if (tessera::is_first(lane)) {
        group.atomic_add(*calls, 1);
      }
    }
  }
};

}  // namespace execution_options_test

using namespace execution_options_test;

TEST_CASE("options begin as those of an executor that nobody watches and that runs all programs", "[host]") {
  tessera::execution_options const fresh;
  CHECK_FALSE(fresh.refuses_slower_programs);
  CHECK(fresh.watched_by == nullptr);
  CHECK_FALSE(fresh.is_dry);
}

TEST_CASE("an executor's options are found and one without options has the defaults", "[host]") {
  line_observer watching;
  tessera::cpu const exec{.threads = 1,
                          .options = {.refuses_slower_programs = true, .watched_by = &watching, .is_dry = true}};
  auto const found = tessera::detail::options_of(exec);
  CHECK(found.refuses_slower_programs);
  CHECK(found.watched_by == &watching);
  CHECK(found.is_dry);
  auto const none = tessera::detail::options_of(tessera::testing::adversary{});
  CHECK_FALSE(none.refuses_slower_programs);
  CHECK(none.watched_by == nullptr);
  CHECK_FALSE(none.is_dry);
}

TEST_CASE("an observer hears the program with its groups and lanes and the bytes that move", "[host]") {
  line_observer watching;
  tessera::execution_options const watched{.watched_by = &watching};
  tessera::detail::tell_launch(watched, tessera::detail::launch_of<counts_calls<64>>(7));
  tessera::detail::tell_bytes(watched, 4096);
  CHECK(watching.lines == std::vector<std::string>{"counts_calls 7 x 64", "4096 bytes"});
  tessera::detail::tell_launch({}, tessera::detail::launch_of<counts_calls<64>>(7));
  tessera::detail::tell_bytes({}, 4096);
  CHECK(watching.lines.size() == 2);
}

TEST_CASE("a dry executor tells of launches and moves but does nothing", "[host]") {
  line_observer watching;
  std::int64_t calls = 0;
  std::vector<std::int32_t> from{1, 2, 3};
  std::vector<std::int32_t> to{7, 7, 7};
  tessera::cpu exec{.threads = 1, .options = {.watched_by = &watching, .is_dry = true}};
  exec.run(counts_calls<32>{&calls}, 5);
  exec.copy(from, to);
  exec.clear(from);
  CHECK(calls == 0);
  CHECK(to == std::vector<std::int32_t>{7, 7, 7});
  CHECK(from == std::vector<std::int32_t>{1, 2, 3});
  CHECK(watching.lines == std::vector<std::string>{"counts_calls 5 x 32", "12 bytes", "12 bytes"});
  exec.options.is_dry = false;
  exec.run(counts_calls<32>{&calls}, 5);
  CHECK(calls == 5);
}
