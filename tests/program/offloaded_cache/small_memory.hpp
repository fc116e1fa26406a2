// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The memory of a small offloaded cache, for tests of programs that read and write parts of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/project/rotary.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera_test {

/// Two sequences of two heads of 12 channels, with room for 8 and 12 chunks of 4 tokens. All memory is full of garbage.
struct small_memory {
  static constexpr std::int64_t heads = 2;
  static constexpr std::int64_t channels = 12;
  static constexpr std::int64_t width = heads * channels;
  static constexpr std::int64_t turning = 8;  ///< channels that are rotated
  static constexpr std::int64_t positions = 64;
  static constexpr std::int64_t record = 4 * channels * 4;  ///< bytes of a record of values in float
  static constexpr float garbage = -777.0F;

  tessera::offload_extents n{};
  std::vector<tessera::cached_sequence> sequences{{0, 8, 0, 0, -1, -1, -1, -1, -1, -1},
                                                  {8, 12, 0, 0, -1, -1, -1, -1, -1, -1}};
  std::vector<tessera::bfloat16> landmarks;
  std::vector<std::int16_t> slots;
  std::vector<float> coefficients;
  std::vector<float> directions;
  std::vector<float> values;
  std::vector<float> ring_keys;
  std::vector<float> ring_values;
  std::vector<float> ring_sources;
  std::vector<float> exact_keys;
  std::vector<float> exact_values;
  std::vector<std::int32_t> exact_ids;
  std::vector<float> exact_measures;
  std::vector<std::int32_t> slot_ids;
  std::vector<std::int32_t> hands;
  std::vector<tessera::chunk_usage> usage;
  std::vector<float> gram;
  std::vector<tessera::rotation> rotations;  ///< positions x pairs

  small_memory() {
    n.batch = 2;
    n.query_heads = 4;
    n.key_heads = heads;
    n.channels = channels;
    n.rank = 5;
    n.chunk = 4;
    n.ring = 16;
    n.outliers = 3;
    n.strays = 2;
    n.slots = 3;
    n.budget = 2;
    n.rows = 20;
    n.longest = 12;
    landmarks.assign(sized(n.rows * heads * channels), tessera::store<tessera::bfloat16>(garbage));
    slots.assign(sized(n.rows * heads), -99);
    coefficients.assign(sized(n.rows * n.chunk * n.rank), garbage);
    directions.assign(sized(2 * width * n.rank), garbage);
    values.assign(sized(n.rows * heads * record / 4), garbage);
    ring_keys.assign(sized(2 * heads * n.ring * channels), garbage);
    ring_values = ring_sources = ring_keys;
    exact_keys.assign(sized(2 * heads * n.exact() * n.chunk * channels), garbage);
    exact_values = exact_keys;
    exact_ids.assign(sized(2 * heads * n.exact()), -99);
    exact_measures.assign(exact_ids.size(), garbage);
    slot_ids.assign(sized(2 * heads * n.slots), -99);
    hands.assign(sized(2 * heads), -99);
    usage.assign(sized(2 * heads), {-99, -99});
    gram.assign(sized(2 * width * width), garbage);
    for (std::int64_t i = 0; i < positions * turning / 2; ++i) {
      auto const angle = static_cast<float>(i % 31) * 0.2F;
      rotations.push_back({std::cos(angle), std::sin(angle)});
    }
  }

  static std::size_t sized(std::int64_t count) { return static_cast<std::size_t>(count); }
  static std::vector<float> samples(std::int64_t count, std::uint64_t seed) {
    std::vector<float> made(sized(count));
    tessera::testing::fill(tessera::testing::gauss{}, seed, made.data(), made.size());
    return made;
  }
  /// The memory; products of keys are kept if `keeps_products`.
  [[nodiscard]] tessera::offloaded_memory<float, tessera::bfloat16> memory(bool keeps_products = false) {
    tessera::offloaded_memory<float, tessera::bfloat16> made;
    made.sequences = sequences;
    made.landmarks = {landmarks.data(), {n.rows, heads, channels}};
    made.chunk_slots = {slots.data(), {n.rows, heads}};
    made.coefficients = {coefficients.data(), {n.rows * n.chunk, n.rank}};
    made.directions = {directions.data(), {2, width, n.rank}};
    made.values = {reinterpret_cast<std::byte*>(values.data()), {n.rows, heads, record}};
    made.ring_keys = {ring_keys.data(), {2, heads, n.ring, channels}};
    made.ring_values = {ring_values.data(), {2, heads, n.ring, channels}};
    made.ring_sources = {ring_sources.data(), {2, n.ring, width}};
    made.exact_keys = {exact_keys.data(), {2, heads, n.exact(), n.chunk, channels}};
    made.exact_values = {exact_values.data(), {2, heads, n.exact(), n.chunk, channels}};
    made.exact_ids = {exact_ids.data(), {2, heads, n.exact()}};
    made.exact_measures = {exact_measures.data(), {2, heads, n.exact()}};
    made.slot_ids = {slot_ids.data(), {2, heads, n.slots}};
    made.hands = {hands.data(), {2, heads}};
    made.usage = {usage.data(), {2, heads}};
    if (keeps_products) {
      made.gram = {gram.data(), {2, width, width}};
    }
    return made;
  }
  [[nodiscard]] tessera::rotary_embedding rotary() const { return {{rotations.data(), {positions, turning / 2}}}; }

  /// Channel `channel` of a key after its rotation, in double: channels i and i + 4 are a pair.
  [[nodiscard]] double turned(float const* key, std::int64_t position, std::int64_t channel) const {
    if (channel >= turning) {
      return double{key[channel]};
    }
    tessera::rotation const by = rotations[sized(position * turning / 2 + channel % (turning / 2))];
    double const own = double{key[channel]} * double{by.cosine};
    double const other = double{key[(channel + turning / 2) % turning]} * double{by.sine};
    return channel < turning / 2 ? own - other : own + other;
  }
  /// Channel `channel` of the value of a token of a chunk in the store, whose records are rows of floats.
  [[nodiscard]] float stored_value(std::int64_t row, std::int64_t head, std::int64_t token,
                                   std::int64_t channel) const {
    return values[sized(((row * heads + head) * n.chunk + token) * channels + channel)];
  }
};

}  // namespace tessera_test
