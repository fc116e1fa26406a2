// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <vector>

#include <tessera/tile/pipelined.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// What a loop of `Ahead` registers does: fetches and takes, in their order, and what each step took.
struct fetched_log {
  std::vector<int> fetched;
  std::vector<int> taken;
  std::vector<int> found;
};

template <int Ahead>
fetched_log log_of(step_range const& steps) {
  fetched_log log;
  int in_flight[Ahead] = {};
  each_fetched_in_rounds(
      steps, in_flight,
      [&](int step, int& to) {
        log.fetched.push_back(step);
        to = 100 + step;
      },
      [&](int step, int const& from) {
        log.taken.push_back(step);
        log.found.push_back(from);
      });
  return log;
}

/// Checks that steps are taken in order with what was fetched for them, fewer than `Ahead` behind the last, and that
/// `Ahead` steps are fetched before they are taken.
template <int Ahead>
void check_steps(step_range const& steps) {
  CAPTURE(Ahead, steps.first, steps.end, steps.by);
  fetched_log const log = log_of<Ahead>(steps);
  int count = 0;
  for (int step = steps.start(); step_range::is_before(step, steps.stop()); step = steps.after(step)) {
    ++count;
  }
  auto const taken = static_cast<int>(log.taken.size());
  CHECK(taken >= count);
  CHECK(taken < count + Ahead);
  CHECK(static_cast<int>(log.fetched.size()) == taken + Ahead);
  for (int i = 0; i < taken; ++i) {
    auto const at = static_cast<std::size_t>(i);
    CHECK(log.taken[at] == steps.first + i * steps.by);
    CHECK(log.found[at] == 100 + log.taken[at]);
  }
  for (std::size_t i = 0; i < log.fetched.size(); ++i) {
    CHECK(log.fetched[i] == steps.first + static_cast<int>(i) * steps.by);
  }
}

}  // namespace

TEST_CASE("steps take what was fetched for them, in order, whatever their number", "[host]") {
  for (int const count : {0, 1, 2, 3, 4, 5, 8, 11}) {
    check_steps<1>({0, count});
    check_steps<2>({3, 3 + count});
    check_steps<4>({2, 2 + 3 * count, 3});
    check_steps<3>({1, 7 * count, 5});
  }
}
