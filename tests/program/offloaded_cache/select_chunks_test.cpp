// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/offloaded_cache/select_chunks.hpp>
#include <tessera/select/landmark.hpp>
#include <tessera/select/query_group.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();

/// Takes half of the chunks that there are to choose from.
struct half_selector : landmark_selector<8> {
  TESSERA_FN std::int64_t budget(std::int64_t candidates) const { return candidates / 2; }
};

/// A sequence of two key heads with three query heads each, whose chunks have scores. Exact chunks have minus infinity.
struct select_problem {
  static constexpr std::int64_t heads = 2;
  static constexpr std::int64_t group = 3;
  offload_extents n{};
  std::vector<cached_sequence> sequences;
  std::vector<float> scores;  ///< rows x heads x group
  std::vector<scaled_exponentials<float>> sums;
  std::vector<std::int16_t> chunk_slots;
  std::vector<std::int32_t> exact_ids;
  std::vector<std::int32_t> selected;
  std::vector<std::int32_t> counts{-9, -9};

  /// Scores are multiples of `step`, so that there are ties.
  select_problem(std::int32_t chunks, std::int64_t budget, float step) {
    n.batch = 1;
    n.query_heads = heads * group;
    n.key_heads = heads;
    n.chunk = 8;
    n.ring = 64;
    n.budget = budget;
    n.outliers = 2;
    n.rows = chunks;
    sequences.push_back({0, chunks, 8 * chunks, chunks, 1.0, 0.0F, 0, 0.0F});
    for (std::int64_t i = 0; i < chunks * heads * group; ++i) {
      scores.push_back(step * std::round(testing::gauss{}.value(1, static_cast<std::uint64_t>(i)) / step));
    }
    chunk_slots.assign(static_cast<std::size_t>(chunks * heads), static_cast<std::int16_t>(chunk_slot::archived));
    exact_ids.assign(heads * 2, -1);
    selected.assign(static_cast<std::size_t>(heads * budget), -9);
  }
  [[nodiscard]] std::int64_t chunks() const { return n.rows; }
  void make_exact(std::int64_t head, std::int64_t index, std::int32_t chunk) {
    exact_ids[static_cast<std::size_t>(2 * head + index)] = chunk;
    chunk_slots[static_cast<std::size_t>(chunk * heads + head)] = static_cast<std::int16_t>(chunk_slot::exact);
    for (std::int64_t i = 0; i < group; ++i) {
      scores[static_cast<std::size_t>((chunk * heads + head) * group + i)] = -infinite;
    }
  }
  [[nodiscard]] float score(std::int64_t chunk, std::int64_t head, std::int64_t query) const {
    return scores[static_cast<std::size_t>((chunk * heads + head) * group + query)];
  }
  /// The sums of each block of 128 chunks, as the program before this one leaves them.
  void add_up() {
    std::int64_t const blocks = (chunks() + 127) / 128;
    sums.assign(static_cast<std::size_t>(blocks * heads * group), lse_reducer<float>{}.identity());
    for (std::int64_t chunk = 0; chunk < chunks(); ++chunk) {
      for (std::int64_t query = 0; query < heads * group; ++query) {
        lse_reducer<float>{}.push(sums[static_cast<std::size_t>(chunk / 128 * heads * group + query)],
                                  score(chunk, query / group, query % group));
      }
    }
  }
  template <class Selector, class Executor>
  void select(Executor const& exec, Selector const& selector) {
    add_up();
    std::int64_t const blocks = (chunks() + 127) / 128;
    offloaded_memory<bfloat16, bfloat16> memory;
    memory.sequences = sequences;
    memory.chunk_slots = {chunk_slots.data(), {chunks(), heads}};
    memory.exact_ids = {exact_ids.data(), {1, heads, 2}};
    offload_step<bfloat16> step;
    step.queries = {nullptr, {1, heads * group, 1}};
    step.scores = {scores.data(), {chunks(), heads, group}};
    step.score_sums = {sums.data(), {1, blocks, heads * group}};
    step.selected = {selected.data(), {1, heads, n.budget}};
    step.selected_counts = {counts.data(), {1, heads}};
    select_chunks<bfloat16, Selector> const program{n, memory, step, selector};
    exec.run(program, program.groups());
  }
  /// The chunks of a head whose largest share of a query's attention is largest, of equal ones the first.
  [[nodiscard]] std::vector<std::int32_t> best(std::int64_t head, std::int64_t most) const {
    std::vector<double> shares(static_cast<std::size_t>(chunks()), -HUGE_VAL);
    for (std::int64_t query = 0; query < group; ++query) {
      // Ties are those of floats, so that the log-sum-exp is rounded as the program rounds it.
      auto all = lse_reducer<float>{}.identity();
      for (std::int64_t block = 0; block * 128 < chunks(); ++block) {
        lse_reducer<float>{}.merge(all, sums[static_cast<std::size_t>((block * heads + head) * group + query)]);
      }
      float const log_sum = lse_reducer<float>{}.value(all);
      for (std::int64_t chunk = 0; chunk < chunks(); ++chunk) {
        double& share = shares[static_cast<std::size_t>(chunk)];
        share = std::fmax(share, static_cast<double>(score(chunk, head, query) - log_sum));
      }
    }
    std::vector<std::int32_t> order(static_cast<std::size_t>(chunks()));
    std::iota(order.begin(), order.end(), 0);
    std::erase_if(order, [&](std::int32_t chunk) { return score(chunk, head, 0) == -infinite; });
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return shares[static_cast<std::size_t>(a)] > shares[static_cast<std::size_t>(b)];
    });
    order.resize(std::min(order.size(), static_cast<std::size_t>(most)));
    std::sort(order.begin(), order.end());
    return order;
  }
  /// How many heads have selected other chunks than the best `most`.
  [[nodiscard]] int wrong_heads(std::int64_t most) const {
    int wrong = 0;
    for (std::int64_t head = 0; head < heads; ++head) {
      auto expected = best(head, most);
      auto const taken = static_cast<std::int32_t>(expected.size());
      expected.resize(static_cast<std::size_t>(n.budget), -1);
      auto const own = selected.begin() + head * n.budget;
      wrong +=
          std::equal(expected.begin(), expected.end(), own) && counts[static_cast<std::size_t>(head)] == taken ? 0 : 1;
    }
    return wrong;
  }
};

}  // namespace

TEST_CASE("the chunks with the largest shares of any query are selected, of equal ones the first", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int32_t const chunks : {1, 7, 127, 128, 129, 700}) {
    for (std::int64_t const budget : {1, 16, 40}) {
      for (float const step : {0.001F, 0.5F}) {
        CAPTURE(chunks, budget, step);
        select_problem problem(chunks, budget, step);
        problem.select(exec, landmark_selector<8>{1000});
        CHECK(problem.wrong_heads(budget) == 0);
        problem.select(exec, landmark_selector<8>{5});
        CHECK(problem.wrong_heads(std::min<std::int64_t>(budget, 5)) == 0);
      }
    }
  }
}

TEST_CASE("exact chunks are not selected and do not count as candidates", "[host]") {
  select_problem problem(20, 20, 0.01F);
  problem.make_exact(0, 0, 4);
  problem.make_exact(0, 1, 19);
  problem.make_exact(1, 1, 0);
  problem.select(cpu{.threads = 1}, landmark_selector<8>{1000});
  CHECK(problem.counts == std::vector<std::int32_t>{18, 19});
  CHECK(problem.wrong_heads(20) == 0);
  problem.select(cpu{.threads = 1}, half_selector{});
  CHECK(problem.counts == std::vector<std::int32_t>{9, 9});
  CHECK(problem.wrong_heads(9) == 0);
}

TEST_CASE("a sequence without room for its token or without chunks selects none", "[host]") {
  select_problem problem(9, 4, 0.01F);
  problem.sequences[0].tokens += 64;
  problem.select(cpu{.threads = 1}, landmark_selector<8>{4});
  CHECK(problem.counts == std::vector<std::int32_t>{0, 0});
  CHECK(problem.selected == std::vector<std::int32_t>(8, -1));
  select_problem empty(9, 4, 0.01F);
  empty.sequences[0].chunks = 0;
  empty.sequences[0].tokens = 10;
  empty.select(cpu{.threads = 1}, landmark_selector<8>{4});
  CHECK(empty.counts == std::vector<std::int32_t>{0, 0});
}

TEST_CASE("selecting chunks keeps the rules for programs", "[host]") {
  select_problem problem(300, 20, 0.5F);
  problem.select(testing::adversary{.seed = 24}, landmark_selector<8>{20});
  CHECK(problem.wrong_heads(20) == 0);
}
