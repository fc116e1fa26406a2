// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/attention/channel_statistics.hpp>
#include <tessera/program/attention/head_source.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/middle_reference.hpp"

using namespace tessera;

namespace {

struct finished {
  std::vector<float> means;
  std::vector<float> scales;
};

/// One head of 3 channels.
template <class Executor>
finished finish(Executor const& exec, std::vector<float> const& values, std::int64_t block, bool with_mean = true,
                std::vector<std::int32_t> const& length = {}, bool is_of_middle = false) {
  std::int64_t const tokens = static_cast<std::int64_t>(values.size()) / 3;
  std::int64_t const blocks = divide_up(tokens, block);
  std::vector<channel_summary> memory(static_cast<std::size_t>(3 * blocks));
  view<channel_summary, 4> const summaries(memory.data(), {1, 1, blocks, 3});
  sequence_lengths const lengths = length.empty() ? sequence_lengths{} : sequence_lengths(length);
  summarize_heads<head_source<float>> const first{
      {{{values.data(), {1, 1, tokens, 3}}, lengths}}, summaries, block, is_of_middle};
  exec.run(first, first.groups());
  finished result{std::vector<float>(3, -77.0F), std::vector<float>(3, -77.0F)};
  view<float, 4> const means(with_mean ? result.means.data() : nullptr, {1, 1, 1, 3});
  finish_summaries<> last{
      summaries, lengths, tokens, block, max(blocks, std::int64_t{1}), means, {result.scales.data(), {1, 1, 1, 3}},
      448.0F,    1};
  last.is_of_middle = is_of_middle;
  exec.run(last, last.groups());
  return result;
}

/// Makes means of middles.
template <class Executor>
std::vector<float> middles(Executor const& exec, std::vector<float> const& values, std::int64_t block = 128,
                           std::vector<std::int32_t> const& length = {}) {
  return finish(exec, values, block, true, length, true).means;
}

std::vector<float> channel_of(std::vector<float> const& values, std::size_t channel) {
  std::vector<float> found;
  for (std::size_t at = channel; at < values.size(); at += 3) {
    found.push_back(values[at]);
  }
  return found;
}

std::vector<float> samples(std::int64_t tokens) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < 3 * tokens; ++i) {
    values.push_back(testing::gauss().value(6, static_cast<std::uint64_t>(i)) + (i % 3 == 1 ? 5.0F : 0.0F));
  }
  return values;
}

/// The documented order, written out another way.
float mean_in_order(std::vector<float> const& values, std::size_t channel, std::size_t block) {
  std::size_t const tokens = values.size() / 3;
  std::vector<float> over(32, 0.0F);
  for (std::size_t b = 0; b * block < tokens; ++b) {
    std::vector<float> inside(16, 0.0F);
    for (std::size_t token = b * block; token < tokens && token < (b + 1) * block; ++token) {
      inside[token % 16] += values[3 * token + channel];
    }
    for (std::size_t half = 8; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) {
        inside[i] += inside[i + half];
      }
    }
    over[b % 32] += inside[0];
  }
  for (std::size_t half = 16; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) {
      over[i] += over[i + half];
    }
  }
  return over[0] / static_cast<float>(tokens);
}

}  // namespace

TEST_CASE("means of channels are added up in the documented order", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {1, 7, 16, 63, 64, 65, 127, 128, 129, 5000}) {
    for (std::int64_t const block : {64, 128}) {
      CAPTURE(tokens, block);
      auto const values = samples(tokens);
      auto const found = finish(exec, values, block);
      for (std::size_t channel = 0; channel < 3; ++channel) {
        CHECK(found.means[channel] == mean_in_order(values, channel, static_cast<std::size_t>(block)));
      }
    }
  }
}

TEST_CASE("means of middles are those of the documented sums, whatever is among the tokens", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens :
       {1, 2, 3, 4, 7, 15, 16, 17, 31, 32, 63, 64, 79, 127, 128, 129, 143, 144, 300, 5003}) {
    for (std::int64_t const block : {64, 128}) {
      for (bool const is_clean : {true, false}) {
        CAPTURE(tokens, block, is_clean);
        auto values = samples(tokens);
        for (std::size_t at = 0; !is_clean && at < values.size(); at += 13) {
          constexpr float awkward[] = {1e5F, -INFINITY, -3e38F, NAN, 3e38F, 1e-42F};
          values[at] = awkward[at / 13 % 6];
        }
        auto const found = middles(exec, values, block);
        for (std::size_t channel = 0; channel < 3; ++channel) {
          float const expected =
              tessera_test::mean_of_middles(channel_of(values, channel), static_cast<std::size_t>(block));
          CHECK(found[channel] == (std::isfinite(expected) ? expected : 0.0F));
        }
      }
    }
  }
}

TEST_CASE("the mean of middles of one token is that token, of two their mean, and of nothing zero", "[host]") {
  cpu const exec{.threads = 1};
  CHECK(middles(exec, {1.1F, -2.3F, 0.7F}) == std::vector<float>{1.1F, -2.3F, 0.7F});
  CHECK(middles(exec, {1.0F, -2.0F, 0.5F, 4.0F, 7.0F, 0.5F}) == std::vector<float>{2.5F, 2.5F, 0.5F});
  CHECK(middles(exec, {}) == std::vector<float>(3, 0.0F));
  auto const values = samples(200);
  CHECK(middles(exec, values, 128, {0}) == std::vector<float>(3, 0.0F));
  CHECK(middles(exec, values, 128, {-5}) == std::vector<float>(3, 0.0F));
  CHECK(middles(exec, values, 128, {100000}) == middles(exec, values));
  for (std::int32_t const length : {1, 2, 9, 16, 20, 130, 150}) {
    CAPTURE(length);
    std::vector<float> const beginning(values.begin(), values.begin() + 3 * length);
    CHECK(middles(exec, values, 128, {length}) == middles(exec, beginning));
  }
}

TEST_CASE("no token of four or more moves a mean of middles far, wherever it is and however large", "[host]") {
  cpu const exec{.threads = 1};
  for (std::int64_t const tokens : {4, 5, 6, 7, 11, 12, 15, 16, 17, 33, 128, 129, 140, 144, 257, 300}) {
    auto const clean = samples(tokens);
    std::vector<float> lowest(3, INFINITY);
    std::vector<float> highest(3, -INFINITY);
    for (std::size_t at = 0; at < clean.size(); ++at) {
      lowest[at % 3] = std::min(lowest[at % 3], clean[at]);
      highest[at % 3] = std::max(highest[at % 3], clean[at]);
    }
    for (std::int64_t token = 0; token < tokens; ++token) {
      for (float const outlier : {1e5F, -1e5F, 3e38F, -3e38F}) {
        auto values = clean;
        std::fill_n(values.begin() + 3 * token, 3, outlier);
        auto const found = middles(exec, values);
        for (std::size_t channel = 0; channel < 3; ++channel) {
          CAPTURE(tokens, token, outlier, channel);
          CHECK((found[channel] >= lowest[channel] && found[channel] <= highest[channel]));
        }
      }
    }
  }
}

TEST_CASE("three tokens too large and three too small in every block do not move a mean of middles far", "[host]") {
  cpu const exec{.threads = 1};
  for (std::int64_t const tokens : {16, 32, 128, 144, 300, 1000}) {
    auto const clean = samples(tokens);
    auto const before = middles(exec, clean);
    for (std::int64_t seed = 0; seed < 40; ++seed) {
      auto values = clean;
      for (std::int64_t first = 0; first + 16 <= tokens; first += 128) {
        std::int64_t const there = min(std::int64_t{128}, (tokens - first) / 16 * 16);
        for (std::int64_t i = 0; i < 6; ++i) {  // steps are odd, so that the six differ
          std::int64_t const token = first + (seed * seed + (2 * seed + 1) * i) % there;
          std::fill_n(values.begin() + 3 * token, 3, i % 2 == 0 ? 1e5F : -2e6F);
        }
      }
      auto const found = middles(exec, values);
      for (std::size_t channel = 0; channel < 3; ++channel) {
        CAPTURE(tokens, seed, channel, found[channel], before[channel]);
        CHECK(std::fabs(found[channel] - before[channel]) < (tokens < 128 ? 2.5F : 1.0F));
      }
    }
  }
}

TEST_CASE("scales are those of the largest magnitude, with a mean of what is left", "[host]") {
  cpu const exec{.threads = 1};
  auto const values = samples(300);
  for (bool const with_mean : {false, true}) {
    auto const found = finish(exec, values, 128, with_mean);
    for (std::size_t channel = 0; channel < 3; ++channel) {
      float largest = 0;
      for (std::size_t token = 0; token < 300; ++token) {
        largest = std::max(largest, std::fabs(values[3 * token + channel] - (with_mean ? found.means[channel] : 0.0F)));
      }
      CHECK(found.scales[channel] == largest / 448.0F);
    }
  }
}

TEST_CASE("an infinity or a NaN poisons the scale of its channel and no mean", "[host]") {
  cpu const exec{.threads = 1};
  auto values = samples(200);
  values[3 * 150] = INFINITY;
  values[3 * 10 + 2] = NAN;
  auto const found = finish(exec, values, 64);
  values[3 * 150] = values[3 * 10 + 2] = 0.0F;
  auto const without = finish(exec, values, 64);
  CHECK(found.means == without.means);
  CHECK(std::isnan(found.scales[0]));
  CHECK(found.scales[1] == without.scales[1]);
  CHECK(std::isnan(found.scales[2]));
}

TEST_CASE("tokens beyond the length of a sequence, and channels of zeros, count for nothing", "[host]") {
  cpu const exec{.threads = 1};
  auto const values = samples(200);
  auto const beginning = std::vector<float>(values.begin(), values.begin() + 3 * 90);
  auto const found = finish(exec, values, 64, true, {90});
  auto const expected = finish(exec, beginning, 64);
  CHECK(found.means == expected.means);
  CHECK(found.scales == expected.scales);
  auto const none = finish(exec, values, 64, true, {0});
  CHECK(none.means == std::vector<float>(3, 0.0F));
  CHECK(none.scales == std::vector<float>(3, 0.0F));
  CHECK(finish(exec, std::vector<float>(30, 0.0F), 64).scales == std::vector<float>(3, 0.0F));
  CHECK(finish(exec, {}, 64).means == std::vector<float>(3, 0.0F));
  CHECK(finish(exec, values, 64, true, {-5}).means == std::vector<float>(3, 0.0F));
  CHECK(finish(exec, values, 64, true, {100000}).means == finish(exec, values, 64).means);
}

TEST_CASE("summaries keep the rules for programs", "[host]") {
  auto const values = samples(300);
  auto const one = finish(cpu{.threads = 1}, values, 128);
  auto const other = finish(testing::adversary{.seed = 3}, values, 128);
  CHECK(one.means == other.means);
  CHECK(one.scales == other.scales);
  CHECK(middles(cpu{.threads = 1}, values) == middles(testing::adversary{.seed = 3}, values));
}
