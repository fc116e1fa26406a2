// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/attention/head_source.hpp>
#include <tessera/program/attention/smoothing_terms.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using source_type = head_source<bfloat16>;

/// Heads of two sequences, the second shorter, whose query heads share two key heads.
struct smoothed_problem {
  static constexpr std::int64_t batch = 2;
  static constexpr std::int64_t key_heads = 2;
  std::int64_t query_heads;
  std::int64_t tokens;
  std::int64_t channels;
  std::vector<std::int32_t> lengths;
  std::vector<bfloat16> heads;           ///< batch x query heads x tokens x channels; key heads are the first two
  std::vector<float> key_means;          ///< batch x key heads x channels
  std::vector<float> query_means;        ///< batch x query heads x blocks x channels
  std::int64_t blocks;                   ///< blocks of queries
  std::vector<float> scores;             ///< batch x query heads x tokens
  std::int64_t padded;                   ///< keys, padded to tiles of 128
  std::vector<float> corrections;        ///< batch x query heads x blocks x slots of padded keys
  std::vector<correction_range> ranges;  ///< batch x query heads x blocks x tiles

  smoothed_problem(std::int64_t of_heads, std::int64_t of_tokens, std::int64_t of_channels)
      : query_heads(of_heads),
        tokens(of_tokens),
        channels(of_channels),
        lengths{static_cast<std::int32_t>(tokens), static_cast<std::int32_t>(tokens / 2)},
        heads(static_cast<std::size_t>(batch * query_heads * tokens * channels)),
        key_means(samples(batch * key_heads * channels, 2)),
        blocks(divide_up(tokens, std::int64_t{block_mean::tokens})),
        scores(static_cast<std::size_t>(batch * query_heads * tokens), -777.0F),
        padded((tokens + 127) / 128 * 128),
        corrections(static_cast<std::size_t>(batch * query_heads * blocks * padded), -777.0F),
        ranges(corrections.size() / 128, correction_range{-777.0F, -777.0F, {}}) {
    query_means = samples(batch * query_heads * blocks * channels, 3);
    for (std::size_t i = 0; i < heads.size(); ++i) {
      heads[i] = store<bfloat16>(testing::gauss{}.value(1, i));
    }
  }
  static std::vector<float> samples(std::int64_t count, std::uint64_t seed) {
    std::vector<float> values(static_cast<std::size_t>(count));
    testing::fill(testing::gauss(), seed, values.data(), values.size());
    return values;
  }
  [[nodiscard]] source_type source(std::int64_t of_heads) const {
    return {{{heads.data(),
              {batch, of_heads, tokens, channels},
              {query_heads * tokens * channels, tokens * channels, channels, 1}},
             lengths}};
  }
  [[nodiscard]] double element(std::int64_t sequence, std::int64_t head, std::int64_t token,
                               std::int64_t channel) const {
    return static_cast<double>(source(query_heads)(sequence, head, token, channel));
  }
  [[nodiscard]] double mean_of_keys(std::int64_t sequence, std::int64_t head, std::int64_t channel) const {
    return static_cast<double>(key_means[static_cast<std::size_t>((sequence * key_heads + head) * channels + channel)]);
  }
  [[nodiscard]] std::int64_t key_head(std::int64_t head) const { return head / (query_heads / key_heads); }

  template <class Executor>
  int wrong_scores(Executor const& exec) {
    mean_scores<source_type> const program{source(query_heads),
                                           {key_means.data(), {batch, key_heads, channels}},
                                           0.125F,
                                           {scores.data(), {batch, query_heads, tokens}}};
    exec.run(program, program.groups());
    int wrong = 0;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(scores.size()); ++i) {
      std::int64_t const token = i % tokens;
      std::int64_t const head = i / tokens % query_heads;
      std::int64_t const sequence = i / tokens / query_heads;
      double expected = 0;
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        expected += 0.125 * element(sequence, head, token, channel) * mean_of_keys(sequence, key_head(head), channel);
      }
      bool const exists = token < lengths[static_cast<std::size_t>(sequence)];
      auto const found = static_cast<double>(scores[static_cast<std::size_t>(i)]);
      wrong += (exists ? std::fabs(found - expected) < 1e-5 : found == -777.0) ? 0 : 1;
    }
    return wrong;
  }

  template <class Executor>
  int wrong_corrections(Executor const& exec) {
    quantized_queries<std::int8_t> queries{};
    queries.corrections = {corrections.data(), {batch, query_heads, blocks, padded}};
    queries.correction_ranges = {ranges.data(), {batch, query_heads, blocks, padded / 128}};
    query_corrections<source_type, quantized_queries<std::int8_t>> const program{
        {query_means.data(), {batch, query_heads, blocks, channels}},
        {source(key_heads), {key_means.data(), {batch, key_heads, 1, channels}}, tokens + 1},
        0.25F,
        queries};
    exec.run(program, program.groups());
    int wrong = 0;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(corrections.size()); ++i) {
      std::int64_t const key = i % padded;
      std::int64_t const row = i / padded;  // of all blocks of all heads of all sequences
      std::int64_t const head = row / blocks % query_heads;
      std::int64_t const sequence = row / blocks / query_heads;
      double expected = 0;
      for (std::int64_t channel = 0; key < lengths[static_cast<std::size_t>(sequence)] && channel < channels;
           ++channel) {
        double const mean = static_cast<double>(query_means[static_cast<std::size_t>(row * channels + channel)]);
        expected += 0.25 * mean *
                    (element(sequence, key_head(head), key, channel) - mean_of_keys(sequence, key_head(head), channel));
      }
      double const found = static_cast<double>(queries.correction(sequence, head, row % blocks, key));
      wrong += std::fabs(found - expected) < 2e-5 ? 0 : 1;
    }
    return wrong + wrong_ranges();
  }
  /// Tiles whose range is not that of their corrections, to the last bit.
  [[nodiscard]] int wrong_ranges() const {
    int wrong = 0;
    for (std::size_t tile = 0; tile < ranges.size(); ++tile) {
      auto const first = corrections.begin() + static_cast<std::ptrdiff_t>(128 * tile);
      float const least = *std::min_element(first, first + 128);
      float const highest = *std::max_element(first, first + 128);
      wrong += ranges[tile].least == least && ranges[tile].spread == highest - least ? 0 : 1;
    }
    return wrong;
  }
};

/// Groups of two tokens.
struct pairs_of_tokens {
  static constexpr std::int64_t group_of(std::int64_t token) { return token / 2; }
};

}  // namespace

TEST_CASE("scores of the mean key are those of a loop in double, and stay where there is no query", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {0, 1, 7, 127, 128, 129}) {
    for (std::int64_t const heads : {2, 6}) {
      CAPTURE(tokens, heads);
      CHECK(smoothed_problem(heads, tokens, 16).wrong_scores(exec) == 0);
    }
  }
}

TEST_CASE("corrections of mean queries are those of a loop in double, and zeros where there is no key",
          "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {1, 64, 129}) {
    CAPTURE(tokens);
    CHECK(smoothed_problem(2, tokens, 8).wrong_corrections(exec) == 0);
    CHECK(smoothed_problem(6, tokens, 16).wrong_corrections(exec) == 0);
  }
  CHECK(smoothed_problem(50, 300, 8).wrong_corrections(exec) == 0);  // 125 rows of a key head: two parts
}

TEST_CASE("decoded keys are codes times the scale of their group", "[host]") {
  std::vector<std::int8_t> codes{1, -2, 3, -4, 5, -6, 7, -8};  // 4 tokens of 2 channels
  std::vector<float> scales{0.5F, 0.25F};
  std::vector<std::int32_t> const lengths{3};
  decoded_keys<std::int8_t, pairs_of_tokens> const keys{
      {{codes.data(), {1, 1, 4, 2}}, {scales.data(), {1, 1, 2}}}, lengths, 4};
  CHECK(keys.heads() == 1);
  CHECK(keys.length(0) == 3);
  CHECK(keys(0, 0, 1, 1) == -2.0F);
  CHECK(keys(0, 0, 2, 0) == 1.25F);
  CHECK(keys(0, 0, 3, 1) == -2.0F);
}

TEST_CASE("terms of smoothing keep the rules for programs", "[host]") {
  testing::adversary const exec{.seed = 13};
  smoothed_problem problem(4, 70, 8);
  CHECK(problem.wrong_scores(exec) == 0);
  CHECK(problem.wrong_corrections(exec) == 0);
}
