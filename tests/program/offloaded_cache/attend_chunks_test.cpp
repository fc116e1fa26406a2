// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/offloaded_cache/attend_chunks.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Two sequences whose tokens are in the ring, in exact chunks and in selected slots; step 1 is of no sequence.
struct attend_problem {
  static constexpr std::int64_t key_heads = 2;
  static constexpr std::int64_t query_heads = 6;
  static constexpr std::int64_t channels = 12;
  static constexpr std::int64_t steps = 3;
  offload_extents n{};
  std::vector<cached_sequence> sequences;
  std::vector<std::int32_t> named{1, -1, 0};
  std::vector<float> queries = samples(steps * query_heads * channels, 1);
  std::vector<float> ring_keys;
  std::vector<float> ring_values;
  std::vector<float> exact_keys;
  std::vector<float> exact_values;
  std::vector<std::int32_t> exact_ids;
  std::vector<float> slot_keys;
  std::vector<float> slot_values;
  std::vector<std::int32_t> selected_slots;
  std::vector<softmax_state<float>> states;
  std::vector<float> totals;
  std::vector<float> results = std::vector<float>(queries.size(), -777.0F);
  std::vector<float> log_sum_exp = std::vector<float>(steps * query_heads, -777.0F);

  /// `in_ring`: tokens of the ring before the step; `selected`: chunks that each head selects.
  attend_problem(std::int32_t in_ring, std::int64_t selected) {
    n.batch = 2;
    n.query_heads = query_heads;
    n.key_heads = key_heads;
    n.channels = channels;
    n.chunk = 8;
    n.ring = 32;
    n.outliers = 2;
    n.strays = 1;
    n.slots = 24;
    n.budget = 20;
    n.rows = 80;
    for (int i = 0; i < 2; ++i) {
      sequences.push_back({40 * i, 40, 8 * 30 + in_ring, 30, 1.0, 0.0F, 0, 0.0F});
    }
    ring_keys = samples(2 * key_heads * n.ring * channels, 2);
    ring_values = samples(2 * key_heads * n.ring * channels, 3);
    exact_keys = samples(2 * key_heads * n.exact() * 8 * channels, 4);
    exact_values = samples(2 * key_heads * n.exact() * 8 * channels, 5);
    slot_keys = samples(2 * key_heads * n.slots * 8 * channels, 6);
    slot_values = samples(2 * key_heads * n.slots * 8 * channels, 7);
    for (int i = 0; i < 2 * key_heads * 3; ++i) {
      exact_ids.push_back(i % 3 == 1 || i == 6 ? -1 : i);
    }
    for (std::int64_t list = 0; list < steps * key_heads; ++list) {
      for (std::int64_t rank = 0; rank < n.budget; ++rank) {
        selected_slots.push_back(rank < selected ? static_cast<std::int32_t>((7 * rank + list) % n.slots) : -1);
      }
    }
    std::int64_t const splits = resident_splits(n) + selected_splits(n);
    states.resize(static_cast<std::size_t>(splits * steps * query_heads));
    totals.resize(static_cast<std::size_t>(splits * steps * query_heads * channels), -777.0F);
  }
  static std::vector<float> samples(std::int64_t count, std::uint64_t seed) {
    std::vector<float> made(static_cast<std::size_t>(count));
    testing::fill(testing::gauss(), seed, made.data(), made.size());
    return made;
  }

  /// Attends in two launches, first to what is on the device from the start.
  template <class Executor>
  void run(Executor const& exec) {
    offloaded_memory<float, bfloat16> memory;
    memory.sequences = sequences;
    memory.ring_keys = {ring_keys.data(), {2, key_heads, n.ring, channels}};
    memory.ring_values = {ring_values.data(), {2, key_heads, n.ring, channels}};
    memory.exact_keys = {exact_keys.data(), {2, key_heads, n.exact(), 8, channels}};
    memory.exact_values = {exact_values.data(), {2, key_heads, n.exact(), 8, channels}};
    memory.exact_ids = {exact_ids.data(), {2, key_heads, n.exact()}};
    memory.slot_keys = {slot_keys.data(), {2, key_heads, n.slots, 8, channels}};
    memory.slot_values = {slot_values.data(), {2, key_heads, n.slots, 8, channels}};
    std::int64_t const resident = resident_splits(n);
    std::int64_t const selected = selected_splits(n);
    offload_step<float> step;
    step.sequences = named;
    step.admitted = named;
    step.queries = {queries.data(), {steps, query_heads, channels}};
    step.selected_slots = {selected_slots.data(), {steps, key_heads, n.budget}};
    step.states = {states.data(), {resident + selected, steps, query_heads}};
    step.totals = {totals.data(), {resident + selected, steps, query_heads, channels}};
    attend_chunks<float, bfloat16> const first{n, memory, step, 0.3F, 0, resident};
    exec.run(first, first.groups());
    attend_chunks<float, bfloat16> const second{n, memory, step, 0.3F, resident, selected};
    exec.run(second, second.groups());
    merge_chunks<float, bfloat16, float> const merge{n,
                                                     sequences,
                                                     step,
                                                     {results.data(), {steps, query_heads, channels}},
                                                     {log_sum_exp.data(), {steps, query_heads}}};
    exec.run(merge, merge.groups());
  }

  /// Sums of a query over the tokens that it sees, in double.
  struct attended {
    double weight = 0;
    double values[channels] = {};
  };
  void take(attended& all, std::int64_t query, std::vector<float> const& keys, std::vector<float> const& values,
            std::int64_t row) const {
    double score = 0;
    for (std::int64_t i = 0; i < channels; ++i) {
      score += 0.3 * static_cast<double>(queries[static_cast<std::size_t>(query * channels + i)]) *
               static_cast<double>(keys[static_cast<std::size_t>(row * channels + i)]);
    }
    all.weight += std::exp(score);
    for (std::int64_t i = 0; i < channels; ++i) {
      all.values[i] += std::exp(score) * static_cast<double>(values[static_cast<std::size_t>(row * channels + i)]);
    }
  }
  [[nodiscard]] attended attend(std::int64_t at, std::int64_t query_head) const {
    attended all;
    std::int64_t const sequence = named[static_cast<std::size_t>(at)];
    std::int64_t const head = query_head / (query_heads / key_heads);
    std::int64_t const list = sequence * key_heads + head;
    std::int64_t const query = at * query_heads + query_head;
    cached_sequence const& known = sequences[static_cast<std::size_t>(sequence)];
    for (std::int64_t token = known.chunks * 8; token <= known.tokens; ++token) {  // with the token of the step
      take(all, query, ring_keys, ring_values, list * n.ring + token % n.ring);
    }
    for (std::int64_t index = 0; index < 3; ++index) {
      for (std::int64_t i = 0; exact_ids[static_cast<std::size_t>(list * 3 + index)] >= 0 && i < 8; ++i) {
        take(all, query, exact_keys, exact_values, (list * 3 + index) * 8 + i);
      }
    }
    for (std::int64_t rank = 0; rank < n.budget; ++rank) {
      std::int64_t const slot = selected_slots[static_cast<std::size_t>((at * key_heads + head) * n.budget + rank)];
      for (std::int64_t i = 0; slot >= 0 && i < 8; ++i) {
        take(all, query, slot_keys, slot_values, (list * n.slots + slot) * 8 + i);
      }
    }
    return all;
  }

  /// How many results and log-sum-exps are wrong; those of the step without a sequence are zeros and minus infinity.
  [[nodiscard]] int wrong() const {
    int count = 0;
    for (std::int64_t row = 0; row < steps * query_heads; ++row) {
      std::int64_t const at = row / query_heads;
      bool const is_there = at != 1;
      attended const all = is_there ? attend(at, row % query_heads) : attended{};
      auto const found = static_cast<double>(log_sum_exp[static_cast<std::size_t>(row)]);
      count += is_there ? (std::fabs(found - std::log(all.weight)) < 1e-5 ? 0 : 1)
                        : (found == -std::numeric_limits<double>::infinity() ? 0 : 1);
      for (std::int64_t i = 0; i < channels; ++i) {
        double const expected = is_there ? all.values[i] / all.weight : 0.0;
        auto const result = static_cast<double>(results[static_cast<std::size_t>(row * channels + i)]);
        count += std::fabs(result - expected) < 2e-6 ? 0 : 1;
      }
    }
    return count;
  }
};

}  // namespace

TEST_CASE("queries attend to the ring, to exact chunks and to selected ones, as a loop in double does",
          "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int32_t const in_ring : {0, 1, 24, 31}) {
    for (std::int64_t const selected : {0, 1, 15, 16, 17, 20}) {
      CAPTURE(in_ring, selected);
      attend_problem problem(in_ring, selected);
      problem.run(exec);
      CHECK(problem.wrong() == 0);
    }
  }
}

TEST_CASE("attending to chunks keeps the rules for programs", "[host]") {
  attend_problem problem(27, 18);
  problem.run(testing::adversary{.seed = 23});
  CHECK(problem.wrong() == 0);
}
