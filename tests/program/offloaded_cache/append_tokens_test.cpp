// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/offloaded_cache/append_tokens.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::message_of;

namespace {

constexpr std::int64_t key_heads = 2;
constexpr std::int64_t query_heads = 4;
constexpr std::int64_t channels = 12;
constexpr std::int64_t turning = 8;  ///< channels that are rotated
constexpr std::int64_t positions = 100;

/// A cache of four sequences, and a step of some of them.
struct append_problem {
  offload_extents n{};
  std::vector<cached_sequence> sequences;
  std::vector<std::int32_t> named;
  std::vector<std::int32_t> admitted;
  std::vector<rotation> rotations;  ///< positions x pairs
  std::vector<float> queries;
  std::vector<float> keys;
  std::vector<float> values;
  std::vector<float> turned;  ///< queries after their rotation
  std::vector<float> ring_keys;
  std::vector<float> ring_values;
  std::vector<float> ring_sources;

  explicit append_problem(std::vector<std::int32_t> of_steps)
      : named(std::move(of_steps)),
        admitted(named.size(), -9),
        queries(samples(query_heads, 1)),
        keys(samples(key_heads, 2)),
        values(samples(key_heads, 3)),
        turned(queries.size(), -777.0F) {
    n.batch = 4;
    n.query_heads = query_heads;
    n.key_heads = key_heads;
    n.channels = channels;
    n.chunk = 8;
    n.ring = 24;
    n.rows = 40;
    for (int i = 0; i < 4; ++i) {
      std::int32_t const tokens = 30 + 3 * i;
      sequences.push_back({10 * i, 10, tokens, 2, 1.0, 0.0F, 0, 0.0F});
    }
    ring_keys.assign(static_cast<std::size_t>(4 * key_heads * n.ring * channels), -777.0F);
    ring_values = ring_keys;
    ring_sources = ring_keys;
    for (std::int64_t i = 0; i < positions * turning / 2; ++i) {
      auto const angle = static_cast<float>(i % 17) * 0.3F;
      rotations.push_back({std::cos(angle), std::sin(angle)});
    }
  }
  [[nodiscard]] std::vector<float> samples(std::int64_t heads, std::uint64_t seed) const {
    std::vector<float> made(named.size() * static_cast<std::size_t>(heads * channels));
    testing::fill(testing::gauss(), seed, made.data(), made.size());
    return made;
  }
  [[nodiscard]] std::int64_t steps() const { return static_cast<std::int64_t>(named.size()); }

  template <class Executor>
  void run(Executor const& exec) {
    offloaded_memory<float, bfloat16> memory;
    memory.sequences = sequences;
    memory.ring_keys = {ring_keys.data(), {4, key_heads, n.ring, channels}};
    memory.ring_values = {ring_values.data(), {4, key_heads, n.ring, channels}};
    memory.ring_sources = {ring_sources.data(), {4, n.ring, key_heads * channels}};
    offload_step<float> step;
    step.sequences = named;
    step.admitted = admitted;
    step.queries = {turned.data(), {steps(), query_heads, channels}};
    append_tokens<float, bfloat16> const program{n,
                                                 memory,
                                                 step,
                                                 {{rotations.data(), {positions, turning / 2}}},
                                                 {queries.data(), {steps(), query_heads, channels}},
                                                 {keys.data(), {steps(), key_heads, channels}},
                                                 {values.data(), {steps(), key_heads, channels}},
                                                 exec.status()};
    exec.run(program, program.groups());
  }

  /// Channel of a row of all heads of a step, rotated to a position in double.
  [[nodiscard]] double rotated_channel(std::vector<float> const& of, std::int64_t row, std::int64_t position,
                                       std::int64_t channel) const {
    auto const at = [&](std::int64_t i) {
      return static_cast<double>(of[static_cast<std::size_t>(row * channels + i)]);
    };
    if (channel >= turning) {
      return at(channel);
    }
    std::int64_t const pair = channel % (turning / 2);
    rotation const by = rotations[static_cast<std::size_t>(position * turning / 2 + pair)];
    auto const cosine = static_cast<double>(by.cosine);
    auto const sine = static_cast<double>(by.sine);
    return channel < turning / 2 ? at(pair) * cosine - at(pair + turning / 2) * sine
                                 : at(pair + turning / 2) * cosine + at(pair) * sine;
  }

  /// How many channels of an admitted step are wrong.
  [[nodiscard]] int wrong_step(std::int64_t step, std::int64_t sequence, std::int64_t position) const {
    int wrong = 0;
    std::int64_t const index = position % n.ring;
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      for (std::int64_t head = 0; head < key_heads; ++head) {
        std::int64_t const row = step * key_heads + head;
        auto const in_ring =
            static_cast<std::size_t>(((sequence * key_heads + head) * n.ring + index) * channels + channel);
        auto const source =
            static_cast<std::size_t>((sequence * n.ring + index) * key_heads * channels + head * channels + channel);
        auto const from = static_cast<std::size_t>(row * channels + channel);
        double const key = rotated_channel(keys, row, position, channel);
        wrong += std::fabs(static_cast<double>(ring_keys[in_ring]) - key) < 1e-6 ? 0 : 1;
        wrong += ring_values[in_ring] == values[from] && ring_sources[source] == keys[from] ? 0 : 1;
      }
      for (std::int64_t head = 0; head < query_heads; ++head) {
        std::int64_t const row = step * query_heads + head;
        double const query = rotated_channel(queries, row, position, channel);
        wrong +=
            std::fabs(static_cast<double>(turned[static_cast<std::size_t>(row * channels + channel)]) - query) < 1e-6
                ? 0
                : 1;
      }
    }
    return wrong;
  }
  [[nodiscard]] std::int64_t written_values() const {
    std::int64_t count = 0;
    for (float const value : ring_values) {
      count += value == -777.0F ? 0 : 1;
    }
    return count;
  }
  /// What wait() says.
  template <class Executor>
  static std::string failure(Executor const& exec) {
    return message_of([&] { exec.wait(); });
  }
};

}  // namespace

TEST_CASE("tokens of a step are rotated to their positions and written into the ring", "[host][threads]") {
  cpu const exec{.threads = 2};
  append_problem problem({2, 0, -1, 3});
  problem.run(exec);
  CHECK(append_problem::failure(exec).empty());
  CHECK(problem.admitted == problem.named);
  CHECK(problem.wrong_step(0, 2, 36) == 0);
  CHECK(problem.wrong_step(1, 0, 30) == 0);
  CHECK(problem.wrong_step(3, 3, 39) == 0);
  CHECK(problem.written_values() == 3 * key_heads * channels);
}

TEST_CASE("steps with a fault are reported and leave their sequences as they are", "[host][threads]") {
  cpu const exec{.threads = 2};
  append_problem outside({1, 4});
  outside.run(exec);
  CHECK(outside.admitted == std::vector<std::int32_t>{1, -1});
  CHECK(outside.written_values() == key_heads * channels);
  CHECK_FALSE(append_problem::failure(exec).empty());
  append_problem repeated({1, 1, 0});
  repeated.run(exec);
  CHECK(repeated.admitted == std::vector<std::int32_t>{-1, -1, 0});
  CHECK(repeated.written_values() == key_heads * channels);
  CHECK_FALSE(append_problem::failure(exec).empty());
  append_problem full({0});
  full.sequences[0].tokens = 16 + 24;
  full.run(exec);
  CHECK(full.admitted == std::vector<std::int32_t>{-1});
  CHECK(full.written_values() == 0);
  CHECK_FALSE(append_problem::failure(exec).empty());
  append_problem never_begun({0});
  never_begun.sequences[0].capacity = -1;
  never_begun.run(exec);
  CHECK(never_begun.admitted == std::vector<std::int32_t>{-1});
  CHECK_FALSE(never_begun.sequences[0].has_room(never_begun.n));  // so later programs leave it out
  CHECK_FALSE(append_problem::failure(exec).empty());
}

TEST_CASE("appending tokens keeps the rules for programs", "[host]") {
  testing::adversary const exec{.seed = 17};
  append_problem problem({3, 1});
  problem.run(exec);
  CHECK(problem.wrong_step(0, 3, 39) == 0);
  CHECK(problem.wrong_step(1, 1, 33) == 0);
}
