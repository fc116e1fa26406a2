// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/offloaded_cache/rebuild_keys.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Two sequences of two heads with chunks of 8 tokens, of which some are missed.
struct rebuild_problem {
  static constexpr std::int64_t heads = 2;
  static constexpr std::int64_t turning = 4;  ///< channels that are rotated
  static constexpr std::int64_t chunks = 12;  ///< of a sequence
  offload_extents n{};
  std::vector<cached_sequence> sequences;
  std::vector<float> coefficients;  ///< rows * 8 x rank
  std::vector<float> directions;    ///< batch x heads * channels x rank
  std::vector<rotation> rotations;  ///< positions x pairs
  std::vector<float> slot_keys;
  std::vector<missed_chunk> missed;
  std::vector<std::int32_t> counts;

  rebuild_problem(std::int64_t channels, std::int64_t rank, std::vector<std::int32_t> each) : counts(std::move(each)) {
    n.batch = 2;
    n.key_heads = n.query_heads = heads;
    n.channels = channels;
    n.rank = rank;
    n.chunk = 8;
    n.ring = 64;
    n.budget = 3;
    n.slots = 5;
    n.rows = 2 * chunks;
    for (int i = 0; i < 2; ++i) {
      sequences.push_back({12 * i, 12, 8 * 12, 12, 1.0, 0.0F, 0, 0.0F});
    }
    coefficients = samples(n.rows * 8 * rank, 1);
    directions = samples(2 * heads * channels * rank, 2);
    for (std::int64_t i = 0; i < 8 * chunks * turning / 2; ++i) {
      auto const angle = static_cast<float>(i % 29) * 0.2F;
      rotations.push_back({std::cos(angle), std::sin(angle)});
    }
    slot_keys.assign(static_cast<std::size_t>(2 * heads * n.slots * 8 * channels), -777.0F);
    missed.assign(static_cast<std::size_t>(2 * heads * n.budget), {-9, -9});
    for (std::size_t list = 0; list < counts.size(); ++list) {
      for (std::int32_t i = 0; i < counts[list]; ++i) {
        auto const number = static_cast<std::int32_t>(list);
        missed[3 * list + static_cast<std::size_t>(i)] = {(5 * i + number) % 12, (2 * i + number) % 5};
      }
    }
  }
  static std::vector<float> samples(std::int64_t count, std::uint64_t seed) {
    std::vector<float> made(static_cast<std::size_t>(count));
    testing::fill(testing::gauss(), seed, made.data(), made.size());
    return made;
  }

  template <class Executor>
  void run(Executor const& exec) {
    offloaded_memory<float, bfloat16> memory;
    memory.sequences = sequences;
    memory.coefficients = {coefficients.data(), {n.rows * 8, n.rank}};
    memory.directions = {directions.data(), {2, heads * n.channels, n.rank}};
    memory.slot_keys = {slot_keys.data(), {2, heads, n.slots, 8, n.channels}};
    offload_step<float> step;
    step.queries = {nullptr, {2, heads, n.channels}};
    step.missed = {missed.data(), {2, heads, n.budget}};
    step.missed_counts = {counts.data(), {2, heads}};
    rebuild_keys<float, bfloat16> const program{n, memory, step, {{rotations.data(), {8 * chunks, turning / 2}}}};
    exec.run(program, program.groups());
  }

  /// A channel of a key before its rotation, in double.
  [[nodiscard]] double plain(std::int64_t sequence, std::int64_t head, std::int64_t token, std::int64_t channel) const {
    double sum = 0;
    for (std::int64_t k = 0; k < n.rank; ++k) {
      auto const row = (sequences[static_cast<std::size_t>(sequence)].first * 8 + token) * n.rank + k;
      auto const column = ((sequence * heads + head) * n.channels + channel) * n.rank + k;
      sum += static_cast<double>(coefficients[static_cast<std::size_t>(row)]) *
             static_cast<double>(directions[static_cast<std::size_t>(column)]);
    }
    return sum;
  }
  [[nodiscard]] double key(std::int64_t sequence, std::int64_t head, std::int64_t token, std::int64_t channel) const {
    double const own = plain(sequence, head, token, channel);
    if (channel >= turning) {
      return own;
    }
    bool const is_first = channel < turning / 2;
    double const other = plain(sequence, head, token, is_first ? channel + turning / 2 : channel - turning / 2);
    rotation const by = rotations[static_cast<std::size_t>(token * turning / 2 + channel % (turning / 2))];
    return own * static_cast<double>(by.cosine) + (is_first ? -other : other) * static_cast<double>(by.sine);
  }

  /// How many elements of slots are not the keys of their chunks, or were written where no chunk was missed.
  [[nodiscard]] int wrong() const {
    int count = 0;
    for (std::int64_t list = 0; list < 2 * heads; ++list) {
      for (std::int64_t slot = 0; slot < n.slots; ++slot) {
        std::int32_t chunk = -1;
        for (std::int32_t i = 0; i < counts[static_cast<std::size_t>(list)]; ++i) {
          missed_chunk const& one = missed[static_cast<std::size_t>(3 * list + i)];
          chunk = one.slot == slot ? one.chunk : chunk;
        }
        for (std::int64_t i = 0; i < 8 * n.channels; ++i) {
          std::int64_t const token = i / n.channels;
          auto const found =
              static_cast<double>(slot_keys[static_cast<std::size_t>((list * n.slots + slot) * 8 * n.channels + i)]);
          double const expected =
              chunk < 0 ? -777.0 : key(list / heads, list % heads, 8 * chunk + token, i % n.channels);
          count += std::fabs(found - expected) <= 1e-5 * (1.0 + std::fabs(expected)) ? 0 : 1;
        }
      }
    }
    return count;
  }
};

}  // namespace

TEST_CASE("keys of missed chunks are rebuilt from their coefficients and rotated to their positions",
          "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const channels : {4, 16, 20}) {
    for (std::int64_t const rank : {1, 7, 32}) {
      CAPTURE(channels, rank);
      rebuild_problem problem(channels, rank, {3, 0, 1, 2});
      problem.run(exec);
      CHECK(problem.wrong() == 0);
    }
  }
  rebuild_problem none(8, 4, {0, 0, 0, 0});
  none.run(exec);
  CHECK(none.wrong() == 0);
}

TEST_CASE("a sequence without room for its token gets no keys", "[host]") {
  rebuild_problem problem(8, 4, {3, 2, 1, 1});
  problem.sequences[1].tokens += 64;
  problem.run(cpu{.threads = 1});
  problem.counts[2] = problem.counts[3] = 0;
  CHECK(problem.wrong() == 0);
}

TEST_CASE("rebuilding keys keeps the rules for programs", "[host]") {
  rebuild_problem problem(12, 5, {2, 3, 0, 1});
  problem.run(testing::adversary{.seed = 22});
  CHECK(problem.wrong() == 0);
}
