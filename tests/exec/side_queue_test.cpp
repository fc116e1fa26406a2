// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/exec/side_queue.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Adds one to each value, and reports values that are too large.
struct add_one {
  static constexpr int lanes = 32;
  struct scratch_type {};
  array_view<int> values;
  status_word* status;
  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      values[which * lanes + lane] += 1;
    }
    group.sync();
    if (values[which * lanes] > 2) {
      group.report(status, status_code::bad_checksum, which);
    }
  }
};

}  // namespace

TEST_CASE("what a CPU's side queue runs is done in order, with or without marks", "[host][threads]") {
  std::vector<int> values(64, 0);
  cpu const exec{.threads = 2};
  side_queue<cpu> const side(exec, 2);
  add_one const program{values, exec.status()};
  exec.run(program, 2);
  side.follow();
  side.executor().run(program, 2);
  CHECK(values == std::vector<int>(64, 2));
  side.mark(1);
  side.join(1);
  CHECK_NOTHROW(side.wait());
  CHECK_NOTHROW(exec.wait());
}

TEST_CASE("what is reported on the side is thrown where the executor waits", "[host][threads]") {
  std::vector<int> values(64, 2);
  cpu const exec{.threads = 2};
  {
    side_queue<cpu> const side(exec, 1);
    CHECK(side.executor().threads == 2);
    CHECK(side.executor().status() == exec.status());
    side.executor().run(add_one{values, exec.status()}, 2);
  }
  CHECK_THROWS_AS(exec.wait(), corrupt_data);
}

TEST_CASE("a side queue of another executor than explain()'s is refused, in both directions", "[host]") {
  cpu const exec;
  cpu dry;
  dry.options.is_dry = true;
  side_queue<cpu> const side(exec, 1);
  side_queue<cpu> const dry_side(dry, 1);
  CHECK_NOTHROW(tessera::detail::check_side("f", exec, side));
  CHECK_NOTHROW(tessera::detail::check_side("f", dry, dry_side));
  CHECK_THROWS_AS(tessera::detail::check_side("f", dry, side), value_error);
  CHECK_THROWS_AS(tessera::detail::check_side("f", exec, dry_side), value_error);
}
