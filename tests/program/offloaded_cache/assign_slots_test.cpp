// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/offloaded_cache/assign_slots.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Sequences of two heads, all of whose chunks are archived at first.
struct slots_problem {
  static constexpr std::int64_t heads = 2;
  offload_extents n{};
  std::vector<cached_sequence> sequences;
  std::vector<std::int16_t> chunk_slots;
  std::vector<std::int32_t> slot_ids;
  std::vector<std::int32_t> hands;
  std::vector<chunk_usage> usage;
  std::vector<std::int32_t> selected;
  std::vector<std::int32_t> selected_slots;
  std::vector<std::int32_t> selected_counts;
  std::vector<missed_chunk> missed;
  std::vector<std::int32_t> missed_counts;

  slots_problem(std::int64_t batch, std::int64_t chunks, std::int64_t budget, std::int64_t slots) {
    n.batch = batch;
    n.key_heads = n.query_heads = heads;
    n.chunk = 8;
    n.ring = 64;
    n.budget = budget;
    n.slots = slots;
    n.rows = batch * chunks;
    for (std::int64_t i = 0; i < batch; ++i) {
      auto const count = static_cast<std::int32_t>(chunks);
      sequences.push_back({static_cast<std::int32_t>(i * chunks), count, 8 * count, count, 1.0, 0.0F, 0, 0.0F});
    }
    auto const size = [&](std::int64_t each) { return static_cast<std::size_t>(batch * heads * each); };
    chunk_slots.assign(size(chunks), -1);
    slot_ids.assign(size(slots), -1);
    hands.assign(size(1), 0);
    usage.assign(size(1), {0, 0});
    selected.assign(size(budget), -9);
    selected_slots.assign(size(budget), -9);
    selected_counts.assign(size(1), 0);
    missed.assign(size(budget), {-9, -9});
    missed_counts.assign(size(1), -9);
  }
  [[nodiscard]] std::int64_t chunks() const { return n.rows / n.batch; }
  [[nodiscard]] std::int64_t lists() const { return n.batch * heads; }
  [[nodiscard]] std::int16_t slot_of(std::int64_t list, std::int64_t chunk) const {
    std::int64_t const row = list / heads * chunks() + chunk;
    return chunk_slots[static_cast<std::size_t>(row * heads + list % heads)];
  }

  /// Selects `count` chunks of each head, other ones for each seed.
  void select(std::int64_t count, std::uint64_t seed) {
    for (std::int64_t list = 0; list < lists(); ++list) {
      std::set<std::int32_t> some;
      for (std::uint64_t i = 0; static_cast<std::int64_t>(some.size()) < count; ++i) {
        std::uint64_t const bits = testing::hash(seed, i * 64 + static_cast<std::uint64_t>(list));
        some.insert(static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(chunks())));
      }
      std::copy(some.begin(), some.end(), selected.begin() + list * n.budget);
      selected_counts[static_cast<std::size_t>(list)] = static_cast<std::int32_t>(count);
    }
  }

  template <class Executor>
  void run(Executor const& exec, bool keeps) {
    offloaded_memory<bfloat16, bfloat16> memory;
    memory.sequences = sequences;
    memory.chunk_slots = {chunk_slots.data(), {n.rows, heads}};
    memory.slot_ids = {slot_ids.data(), {n.batch, heads, n.slots}};
    memory.hands = {hands.data(), {n.batch, heads}};
    memory.usage = {usage.data(), {n.batch, heads}};
    offload_step<bfloat16> step;
    step.queries = {nullptr, {n.batch, heads, 1}};
    step.selected = {selected.data(), {n.batch, heads, n.budget}};
    step.selected_slots = {selected_slots.data(), {n.batch, heads, n.budget}};
    step.selected_counts = {selected_counts.data(), {n.batch, heads}};
    step.missed = {missed.data(), {n.batch, heads, n.budget}};
    step.missed_counts = {missed_counts.data(), {n.batch, heads}};
    assign_slots<bfloat16, bfloat16> const program{n, memory, step, keeps};
    exec.run(program, program.groups());
  }

  /// How many laws of a list are broken, given the state before: every selected chunk is in one slot, those that were
  /// in a slot stay there, and the missed ones are listed in the order of the selection.
  [[nodiscard]] int broken_laws(slots_problem const& before, std::int64_t list) const {
    int broken = 0;
    std::set<std::int32_t> taken;
    std::vector<std::int32_t> absent;
    std::int64_t const count = selected_counts[static_cast<std::size_t>(list)];
    for (std::int64_t rank = 0; rank < count; ++rank) {
      std::int32_t const chunk = selected[static_cast<std::size_t>(list * n.budget + rank)];
      std::int32_t const slot = selected_slots[static_cast<std::size_t>(list * n.budget + rank)];
      bool const is_in_range = slot >= 0 && slot < n.slots;
      broken += is_in_range && taken.insert(slot).second ? 0 : 1;
      broken += slot_of(list, chunk) == slot ? 0 : 1;
      broken += is_in_range && slot_ids[static_cast<std::size_t>(list * n.slots + slot)] == chunk ? 0 : 1;
      if (before.slot_of(list, chunk) >= 0) {
        broken += before.slot_of(list, chunk) == slot ? 0 : 1;
      } else {
        auto const at = static_cast<std::size_t>(list * n.budget) + absent.size();
        broken += missed[at].chunk == chunk && missed[at].slot == slot ? 0 : 1;
        absent.push_back(chunk);
      }
    }
    for (std::int64_t rank = count; rank < n.budget; ++rank) {
      broken += selected_slots[static_cast<std::size_t>(list * n.budget + rank)] == -1 ? 0 : 1;
    }
    broken += missed_counts[static_cast<std::size_t>(list)] == static_cast<std::int32_t>(absent.size()) ? 0 : 1;
    // A chunk is at the slot that has its number, and at no other.
    for (std::int64_t chunk = 0; chunk < chunks(); ++chunk) {
      std::int16_t const at = slot_of(list, chunk);
      auto const first = slot_ids.begin() + list * n.slots;
      auto const holders = std::count(first, first + n.slots, static_cast<std::int32_t>(chunk));
      broken += holders == (at >= 0 ? 1 : 0) ? 0 : 1;
    }
    chunk_usage const was = before.usage[static_cast<std::size_t>(list)];
    chunk_usage const is = usage[static_cast<std::size_t>(list)];
    auto const resident = count - static_cast<std::int64_t>(absent.size());
    return broken + (is.selected - was.selected == count && is.resident - was.resident == resident ? 0 : 1);
  }
  [[nodiscard]] int broken_laws(slots_problem const& before) const {
    int broken = 0;
    for (std::int64_t list = 0; list < lists(); ++list) {
      broken += broken_laws(before, list);
    }
    return broken;
  }
};

}  // namespace

TEST_CASE("selected chunks keep their slots and missed ones get free slots", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const budget : {1, 7, 255, 256, 257}) {
    for (std::int64_t const slots : {budget, budget + 40}) {
      CAPTURE(budget, slots);
      slots_problem problem(2, 600, budget, slots);
      for (std::uint64_t turn = 0; turn < 5; ++turn) {
        slots_problem const before = problem;
        problem.select(turn == 3 ? 0 : turn == 4 ? (budget + 1) / 2 : budget, turn % 2);
        problem.run(exec, true);
        CAPTURE(turn);
        CHECK(problem.broken_laws(before) == 0);
      }
    }
  }
}

TEST_CASE("a slot that was filled longer ago is taken sooner", "[host]") {
  cpu const exec{.threads = 1};
  slots_problem problem(1, 50, 2, 6);
  auto const slots_of = [&](std::int32_t a, std::int32_t b) {
    for (std::int64_t list = 0; list < 2; ++list) {
      problem.selected[static_cast<std::size_t>(2 * list)] = a;
      problem.selected[static_cast<std::size_t>(2 * list + 1)] = b;
      problem.selected_counts[static_cast<std::size_t>(list)] = 2;
    }
    problem.run(exec, true);
    return std::vector<std::int32_t>(problem.selected_slots.begin(), problem.selected_slots.begin() + 2);
  };
  CHECK(slots_of(10, 11) == std::vector<std::int32_t>{0, 1});
  CHECK(slots_of(20, 21) == std::vector<std::int32_t>{2, 3});
  CHECK(slots_of(11, 30) == std::vector<std::int32_t>{1, 4});
  CHECK(slots_of(31, 32) == std::vector<std::int32_t>{5, 0});  // chunk 10, the oldest, has to go
  CHECK(slots_of(11, 33) == std::vector<std::int32_t>{1, 2});
  CHECK(problem.slot_of(0, 10) == static_cast<std::int16_t>(chunk_slot::archived));
  CHECK(problem.slot_of(0, 20) == static_cast<std::int16_t>(chunk_slot::archived));
  CHECK(problem.slot_of(0, 21) == 3);
}

TEST_CASE("where nothing is kept all selected chunks are fetched into their slots", "[host]") {
  slots_problem problem(1, 30, 3, 5);
  problem.select(3, 1);
  problem.run(cpu{.threads = 1}, true);
  auto const first = problem.selected_slots;
  problem.run(cpu{.threads = 1}, false);
  CHECK(problem.selected_slots == first);
  CHECK(problem.missed_counts == std::vector<std::int32_t>{3, 3});
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(problem.missed[i].chunk == problem.selected[i]);
    CHECK(problem.missed[i].slot == problem.selected_slots[i]);
  }
}

TEST_CASE("a sequence without room for its token gets no slots", "[host]") {
  slots_problem problem(2, 20, 4, 6);
  problem.sequences[1].tokens += 64;  // the ring looks full
  slots_problem const before = problem;
  problem.select(4, 2);
  problem.run(cpu{.threads = 1}, true);
  CHECK(problem.broken_laws(before, 0) == 0);
  CHECK(problem.broken_laws(before, 1) == 0);
  CHECK(problem.missed_counts[2] == 0);
  CHECK(problem.missed_counts[3] == 0);
  CHECK(problem.slot_ids[12] == -1);
}

TEST_CASE("assigning slots keeps the rules for programs", "[host]") {
  slots_problem problem(1, 300, 270, 280);
  testing::adversary const exec{.seed = 21};
  for (std::uint64_t turn = 0; turn < 2; ++turn) {
    slots_problem const before = problem;
    problem.select(270 - static_cast<std::int64_t>(turn), turn);
    problem.run(exec, true);
    CHECK(problem.broken_laws(before) == 0);
  }
}
