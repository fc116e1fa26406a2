// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/offloaded_cache/refit_keys.hpp>
#include <tessera/testing/adversary.hpp>

#include "program/offloaded_cache/small_memory.hpp"
#include "support/catch.hpp"

using namespace tessera;

namespace {

/// The second sequence, rows 8 to 19, has seven archived chunks of twelve, and gets new directions.
struct refit : tessera_test::small_memory {
  std::vector<float> renewed = samples(width * n.rank, 5);
  std::vector<float> relation = std::vector<float>(sized(n.rank * n.rank), garbage);
  std::vector<float> before;
  std::vector<subspace_measures> found{{900.0, 675.0, 1.0F, 3.0F}};

  refit() {
    directions = samples(2 * width * n.rank, 6);
    coefficients = samples(n.rows * n.chunk * n.rank, 7);
    before = coefficients;
    sequences[1].chunks = 7;
    sequences[1].tokens = 40;
    sequences[1].scale = 0.5F;
  }
  [[nodiscard]] matrix_view<float const> after() const { return {renewed.data(), {width, n.rank}}; }
  [[nodiscard]] matrix_view<float> related() { return {relation.data(), {n.rank, n.rank}}; }
  template <class Executor>
  void relate(Executor const& exec) {
    relate_directions<float> const program{memory().directions[1], after(), related()};
    exec.run(program, program.groups());
  }
  template <class Executor>
  void turn(Executor const& exec) {
    turn_coefficients<float, bfloat16> const program{n, memory(), related(), 1, 12};
    exec.run(program, program.groups());
  }
  template <class Executor>
  void finish(Executor const& exec) {
    finish_refit<float, bfloat16> const program{n, memory(), after(), 1, found};
    exec.run(program, program.groups());
  }
};

template <class Executor>
void check_refit(Executor const& exec) {
  refit of;
  std::int64_t const rank = of.n.rank;
  auto const old = of.memory().directions[1];
  double worst = 0;
  of.relate(exec);
  for (std::int64_t i = 0; i < rank; ++i) {
    for (std::int64_t k = 0; k < rank; ++k) {
      double sum = 0;
      for (std::int64_t channel = 0; channel < of.width; ++channel) {
        sum += double{old(channel, i)} * double{of.after()(channel, k)};
      }
      worst = std::max(worst, std::fabs(sum - double{of.related()(i, k)}));
    }
  }
  CHECK(worst < 1e-5);

  of.turn(exec);
  worst = 0;
  std::int64_t changed_others = 0;
  for (std::int64_t token = 0; token < of.n.rows * of.n.chunk; ++token) {
    bool const is_turned = token >= 8 * 4 && token < (8 + 7) * 4;
    for (std::int64_t k = 0; k < rank; ++k) {
      float const result = of.coefficients[of.sized(token * rank + k)];
      double sum = 0;
      for (std::int64_t j = 0; j < rank; ++j) {
        sum += double{of.before[of.sized(token * rank + j)]} * double{of.related()(j, k)};
      }
      worst = std::max(worst, is_turned ? std::fabs(sum - double{result}) : 0.0);
      changed_others += is_turned || result == of.before[of.sized(token * rank + k)] ? 0 : 1;
    }
  }
  CHECK(worst < 5e-5);  // products of some tens
  CHECK(changed_others == 0);
}

template <class Executor>
void check_end(Executor const& exec) {
  refit of;
  auto const memory = of.memory();
  std::fill(of.slots.begin(), of.slots.end(), static_cast<std::int16_t>(chunk_slot::exact));
  for (std::int64_t head = 0; head < 2; ++head) {  // chunk 4 of head 0 and chunk 2 of head 1 are in slots
    for (std::int64_t slot = 0; slot < 3; ++slot) {
      memory.slot_ids(1, head, slot) = slot == 1 ? static_cast<std::int32_t>(4 - 2 * head) : -1;
    }
    memory.chunk_slots(8 + 4 - 2 * head, head) = 1;
  }
  auto const first_sequence = std::vector<float>(of.directions.begin(), of.directions.begin() + of.width * of.n.rank);
  of.finish(exec);
  CHECK(std::equal(of.renewed.begin(), of.renewed.end(), of.directions.begin() + of.width * of.n.rank));
  CHECK(std::equal(first_sequence.begin(), first_sequence.end(), of.directions.begin()));
  CHECK(memory.chunk_slots(12, 0) == static_cast<std::int16_t>(chunk_slot::archived));
  CHECK(memory.chunk_slots(10, 1) == static_cast<std::int16_t>(chunk_slot::archived));
  CHECK(std::count(of.slots.begin(), of.slots.end(), static_cast<std::int16_t>(chunk_slot::archived)) == 2);
  CHECK(std::count(of.slot_ids.begin(), of.slot_ids.begin() + 6, -99) == 6);  // those of the first sequence
  CHECK(std::count(of.slot_ids.begin() + 6, of.slot_ids.end(), -1) == 6);
  cached_sequence const known = of.sequences[1];
  CHECK(known.energy == 900.0 / (0.25 * 40));  // products have the scale with which they were kept
  CHECK(known.residual == 0.25F);
  CHECK((known.fitted == 40 && known.streamed == 0 && known.streamed_residual == 0));
  CHECK((known.tokens == 40 && known.chunks == 7 && known.scale == 0.5F));
  CHECK(of.sequences[0].residual == -1);
}

}  // namespace

TEST_CASE("coefficients of archived chunks are turned into new directions, and no others", "[host][threads]") {
  check_refit(cpu{.threads = 2});
}

TEST_CASE("a refit forgets rebuilt keys and begins to count anew", "[host][threads]") {
  check_end(cpu{.threads = 2});
  refit empty;
  empty.sequences[1].tokens = 0;
  empty.found[0] = {0.0, 0.0, 1.0F, 1.0F};
  empty.finish(cpu{.threads = 1});
  CHECK(empty.sequences[1].energy == 0.0);
  CHECK(empty.sequences[1].residual == 0.0F);
}

TEST_CASE("a refit keeps the rules for programs", "[host]") {
  check_refit(testing::adversary{.seed = 41});
  check_end(testing::adversary{.seed = 42});
}
