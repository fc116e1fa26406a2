// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/program/offloaded_cache/cache_memory.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("a part of a step is of its own sequences, at their own indices", "[host]") {
  std::int64_t const steps = 5;
  offload_step<float> step;
  std::vector<float> queries(5 * 4 * 16);
  std::vector<float> totals(3 * 5 * 4 * 16);
  std::vector<softmax_state<float>> states(3 * 5 * 4);
  std::vector<std::int32_t> counts(5 * 2);
  step.queries = {queries.data(), {steps, 4, 16}};
  step.totals = {totals.data(), {3, steps, 4, 16}};
  step.states = {states.data(), {3, steps, 4}};
  step.missed_counts = {counts.data(), {steps, 2}};
  offload_step<float> const part = step.part(2, 3).part(1, 2);
  CHECK(part.steps() == 2);
  CHECK(part.named(0) == 3);
  CHECK(part.named(1) == 4);
  CHECK(&part.queries(0, 1, 2) == &step.queries(3, 1, 2));
  CHECK(&part.totals(2, 1, 3, 5) == &step.totals(2, 4, 3, 5));
  CHECK(&part.states(1, 0, 2) == &step.states(1, 3, 2));
  CHECK(&part.missed_counts(1, 1) == &step.missed_counts(4, 1));
  std::vector<std::int32_t> const named{4, 0, 7, -1, 2};
  step.sequences = named;
  CHECK(step.part(2, 3).part(1, 2).named(0) == -1);
  CHECK(step.part(2, 3).part(1, 2).named(1) == 2);
}
