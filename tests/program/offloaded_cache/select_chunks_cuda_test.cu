// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/offloaded_cache/offloaded_cache.cuh>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/cuda_memory.cuh>
#include <tessera/exec/explain.hpp>
#include <tessera/program/offloaded_cache/select_chunks.cuh>
#include <tessera/select/landmark.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;

namespace {

using selector = landmark_selector<8>;
using call_type = select_chunks<bfloat16, selector>;

/// What a selection reads and writes, in memory of an executor.
template <class Exec>
struct selection {
  buffer<cached_sequence> sequences;
  buffer<std::int16_t> chunk_slots;
  buffer<std::int32_t> exact_ids;
  buffer<float> scores;
  buffer<scaled_exponentials<float>> sums;
  buffer<std::int32_t> selected;
  buffer<std::int32_t> counts;
};

/// Sequences of two key heads with four query heads each, whose chunks have random scores.
struct selection_problem {
  offload_extents n{};
  std::vector<cached_sequence> sequences;
  std::vector<std::int16_t> chunk_slots;
  std::vector<std::int32_t> exact_ids;
  std::vector<float> scores;
  std::vector<scaled_exponentials<float>> sums;

  selection_problem(std::vector<std::int32_t> const& chunks, std::int64_t budget) {
    n.batch = static_cast<std::int64_t>(chunks.size());
    n.query_heads = 8;
    n.key_heads = 2;
    n.channels = 64;
    n.chunk = 8;
    n.ring = 64;
    n.budget = budget;
    n.outliers = 4;
    for (std::int32_t const count : chunks) {
      sequences.push_back({static_cast<std::int32_t>(n.rows), count, count * 8 + 3, count, 1.0F, 0.0F, 0, 0.0F});
      n.rows += count;
      n.longest = std::max<std::int64_t>(n.longest, count);
    }
    scores.resize(static_cast<std::size_t>(n.rows * n.query_heads));
    testing::fill(testing::gauss{3}, 5, scores.data(), scores.size());
    chunk_slots.assign(static_cast<std::size_t>(n.rows * 2), static_cast<std::int16_t>(chunk_slot::archived));
    exact_ids.assign(static_cast<std::size_t>(n.batch * 2 * n.exact()), -1);
    sums.assign(static_cast<std::size_t>(n.batch * blocks() * n.query_heads), lse_reducer<float>{}.identity());
    for (std::int64_t at = 0; at < n.batch; ++at) {
      for (std::int64_t head = 0; head < 2; ++head) {
        make_exact(at, head);
        add_up(at, head);
      }
    }
  }

  std::int64_t blocks() const { return divide_up(n.longest, scored_chunks); }

  /// The number of selected chunks of each head, and their numbers. `run` is called with the executor and the call.
  template <class Exec, class Run>
  std::vector<std::int32_t> select(Exec const& exec, Run const& run) const {
    selection<Exec> own{there(exec, sequences),
                        there(exec, chunk_slots),
                        there(exec, exact_ids),
                        there(exec, scores),
                        there(exec, sums),
                        there(exec, std::vector<std::int32_t>(static_cast<std::size_t>(n.batch * 2 * n.budget), -7)),
                        there(exec, std::vector<std::int32_t>(static_cast<std::size_t>(n.batch * 2), -7))};
    offloaded_memory<bfloat16, bfloat16> memory{};
    memory.sequences = {own.sequences.data(), n.batch};
    memory.chunk_slots = {own.chunk_slots.data(), {n.rows, 2}};
    memory.exact_ids = {own.exact_ids.data(), {n.batch, 2, n.exact()}};
    offload_step<bfloat16> step{};
    step.queries = {nullptr, {n.batch, n.query_heads, n.channels}};
    step.scores = {own.scores.data(), {n.rows, 2, 4}, {1, 4 * n.rows, n.rows}};
    step.score_sums = {own.sums.data(), {n.batch, blocks(), n.query_heads}};
    step.selected = {own.selected.data(), {n.batch, 2, n.budget}};
    step.selected_counts = {own.counts.data(), {n.batch, 2}};
    run(exec, call_type{n, memory, step, {}});
    std::vector<std::int32_t> counts(static_cast<std::size_t>(n.batch * 2));
    std::vector<std::int32_t> found(static_cast<std::size_t>(n.batch * 2 * n.budget));
    exec.copy(own.counts.view(), counts);
    exec.copy(own.selected.view(), found);
    exec.wait();
    counts.insert(counts.end(), found.begin(), found.end());
    return counts;
  }

 private:
  template <class Exec, class U>
  static buffer<U> there(Exec const& exec, std::vector<U> const& from) {
    buffer<U> made(exec, static_cast<std::int64_t>(from.size()));
    exec.copy(from, made);
    return made;
  }
  float& score(std::int64_t at, std::int64_t chunk, std::int64_t query_head) {
    return scores[static_cast<std::size_t>(query_head * n.rows + sequences[static_cast<std::size_t>(at)].first +
                                           chunk)];
  }
  /// Some chunks of a head are exact, and have no scores; others have equal ones.
  void make_exact(std::int64_t at, std::int64_t head) {
    std::int64_t const count = sequences[static_cast<std::size_t>(at)].chunks;
    for (std::int64_t i = 0; i < n.exact() && 7 * i + head < count; ++i) {
      std::int64_t const chunk = 7 * i + head;
      exact_ids[static_cast<std::size_t>((at * 2 + head) * n.exact() + i)] = static_cast<std::int32_t>(chunk);
      chunk_slots[static_cast<std::size_t>((sequences[static_cast<std::size_t>(at)].first + chunk) * 2 + head)] =
          static_cast<std::int16_t>(chunk_slot::exact);
      for (std::int64_t query = 0; query < 4; ++query) {
        score(at, chunk, head * 4 + query) = -INFINITY;
      }
    }
    for (std::int64_t chunk = 100; chunk + 1 < count; chunk += 50) {
      for (std::int64_t query = 0; query < 4; ++query) {
        score(at, chunk + 1, head * 4 + query) = score(at, chunk, head * 4 + query);
      }
    }
  }
  void add_up(std::int64_t at, std::int64_t head) {
    for (std::int64_t query = head * 4; query < head * 4 + 4; ++query) {
      for (std::int64_t chunk = 0; chunk < sequences[static_cast<std::size_t>(at)].chunks; ++chunk) {
        lse_reducer<float>{}.push(
            sums[static_cast<std::size_t>((at * blocks() + chunk / scored_chunks) * n.query_heads + query)],
            score(at, chunk, query));
      }
    }
  }
};

/// The program that a device of an architecture, with so much shared memory, chooses chunks by.
std::string chosen(int of_device, int shared_bytes, std::int32_t chunks) {
  call_type call{};
  call.extents.key_heads = 8;
  call.extents.query_heads = 32;
  call.extents.longest = chunks;
  call.step.queries = {nullptr, {1, 32, 128}};
  call.step.scores = {nullptr, {chunks, 8, 4}, {1, 4 * std::int64_t{chunks}, chunks}};
  auto const device =
      cuda::described({.architecture = of_device, .multiprocessors = 108, .shared_bytes = shared_bytes});
  return std::string(explain(device, call).choices.at(0).program);
}

}  // namespace

TEST_CASE("the largest chunks are found with as much room for keys as the code's architecture has", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  for (std::vector<std::int32_t> const& chunks :
       {std::vector<std::int32_t>{300, 0, 4000, 3}, std::vector<std::int32_t>{20480, 16384}}) {
    selection_problem const p(chunks, 256);
    auto const expected =
        p.select(cpu{}, [](cpu const& host, call_type const& call) { host.run(call, call.groups()); });
    CHECK(expected[0] == 256);
    CHECK(p.select(exec, [](cuda const& there, call_type const& call) {
      using program = choose_largest<bfloat16, selector>;
      CHECK(program::takes(call, there.architecture_of_code<program>()));
      there.run(program::of(call), call.groups());
    }) == expected);
  }
}

TEST_CASE("sequences of 160K tokens are chosen from with 99 KiB of shared memory", "[cuda]") {
  if constexpr (described_cuda::is_compiled_for<800>) {
    CHECK(chosen(800, 163 * 1024, 20480) == "choose_largest");
    CHECK(chosen(800, 99 * 1024, 20480) == "choose_largest");
    CHECK(chosen(800, 99 * 1024, 20481) == "portable program");
  }
  if constexpr (described_cuda::is_compiled_for<900>) {
    CHECK(chosen(900, 227 * 1024, 40960) == "choose_largest");
    CHECK(chosen(900, 227 * 1024, 40961) == "portable program");
    CHECK(chosen(900, 163 * 1024, 40960) == "portable program");
  }
}
