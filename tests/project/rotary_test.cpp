// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/project/rotary.hpp>
#include <tessera/project/rotary_tables.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/real_tensor.hpp"

using namespace tessera;

namespace {

struct values_of {
  float const* data;
  float operator()(std::int64_t channel) const { return data[channel]; }
};

std::vector<float> turned(rotary_embedding const& rotary, std::int64_t position, std::vector<float> const& row) {
  std::vector<float> result;
  for (std::size_t channel = 0; channel < row.size(); ++channel) {
    result.push_back(rotary.turn(position, static_cast<std::int64_t>(channel), values_of{row.data()}));
  }
  return result;
}

std::vector<float> normal_row(std::size_t channels, std::uint64_t seed) {
  std::vector<float> row(channels);
  testing::fill(testing::gauss(), seed, row.data(), channels);
  return row;
}

double square(std::vector<float> const& row) {
  double sum = 0;
  for (float value : row) {
    sum += double{value} * double{value};
  }
  return sum;
}

}  // namespace

TEST_CASE("channels turn by the angle of their position, in either order of pairs", "[host]") {
  auto const frequencies = rotary_frequencies(10000.0, 16);
  rotary_tables const tables(frequencies, 200000);
  auto const row = normal_row(20, 1);
  for (std::int64_t const position : {0, 1, 255, 256, 257, 131071, 199999}) {
    CAPTURE(position);
    auto const halves = turned(tables.embedding(rotary_pairs::halves), position, row);
    auto const neighbours = turned(tables.embedding(rotary_pairs::neighbours), position, row);
    for (std::size_t pair = 0; pair < 8; ++pair) {
      double const angle = frequencies[pair] * static_cast<double>(position);
      double const c = std::cos(angle);
      double const s = std::sin(angle);
      CHECK(halves[pair] == Approx(c * double{row[pair]} - s * double{row[pair + 8]}).margin(1e-6));
      CHECK(halves[pair + 8] == Approx(c * double{row[pair + 8]} + s * double{row[pair]}).margin(1e-6));
      CHECK(neighbours[2 * pair] == Approx(c * double{row[2 * pair]} - s * double{row[2 * pair + 1]}).margin(1e-6));
      CHECK(neighbours[2 * pair + 1] == Approx(c * double{row[2 * pair + 1]} + s * double{row[2 * pair]}).margin(1e-6));
    }
    for (std::size_t channel = 16; channel < 20; ++channel) {  // those that do not turn
      CHECK(halves[channel] == row[channel]);
      CHECK(neighbours[channel] == row[channel]);
    }
  }
}

TEST_CASE("turns keep lengths and add up", "[host]") {
  rotary_tables const tables(rotary_frequencies(500000.0, 64), 4096);
  auto const rotary = tables.embedding(rotary_pairs::halves);
  auto const row = normal_row(64, 2);
  auto const once = turned(rotary, 1234, row);
  CHECK(square(once) == Approx(square(row)).epsilon(1e-6));
  auto const twice = turned(rotary, 700, once);
  auto const together = turned(rotary, 1934, row);
  for (std::size_t channel = 0; channel < 64; ++channel) {
    CHECK(twice[channel] == Approx(together[channel]).margin(2e-6));
  }
}

TEST_CASE("an amplitude lengthens all turns", "[host]") {
  rotary_tables const tables(rotary_frequencies(10000.0, 8), 1000, 1.25);
  auto const row = normal_row(8, 3);
  CHECK(square(turned(tables.embedding(rotary_pairs::halves), 777, row)) == Approx(1.5625 * square(row)).epsilon(1e-6));
}

TEST_CASE("a caller's table of all positions is taken as it is", "[host]") {
  std::vector<rotation> const table{{1, 0}, {0, 1}, {0.6F, 0.8F}};
  rotary_embedding const rotary{{table.data(), {3, 1}}, {}, rotary_pairs::neighbours};
  CHECK(rotary.positions() == 3);
  CHECK(turned(rotary, 1, {2, 3, 5}) == std::vector<float>{-3, 2, 5});
  CHECK(turned(rotary_embedding{}, 1, {2, 3, 5}) == std::vector<float>{2, 3, 5});
}

TEST_CASE("keys of a real model turn as the model turned them", "[host]") {
  constexpr char const* file = "smollm2_attention.safetensors";
  auto const before = tessera_test::real_tensor<bfloat16>(file, "layers.15.keys_pre_rope");
  auto const after = tessera_test::real_tensor<bfloat16>(file, "layers.15.keys_post_rope");
  rotary_tables const tables(rotary_frequencies(100000.0, 64), 512);
  auto const rotary = tables.embedding(rotary_pairs::halves);
  double error = 0;
  double whole = 0;
  for (std::size_t row = 0; row < before.size() / 64; ++row) {
    std::vector<float> key;
    for (std::size_t channel = 0; channel < 64; ++channel) {
      key.push_back(load(before[row * 64 + channel]));
    }
    auto const found = turned(rotary, static_cast<std::int64_t>(row % 512), key);
    for (std::size_t channel = 0; channel < 64; ++channel) {
      double const expected = load(after[row * 64 + channel]);
      error += (double{found[channel]} - expected) * (double{found[channel]} - expected);
      whole += expected * expected;
    }
  }
  CHECK(std::sqrt(error / whole) < 0.003);  // both were rounded to bf16
}
