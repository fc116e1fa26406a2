// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/attention/compare_heads.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Two tensors of sequences x heads x tokens x channels, the second with tokens before heads in memory.
struct compared_heads {
  std::int64_t sequences;
  std::int64_t heads;
  std::int64_t tokens;
  std::int64_t channels;
  std::vector<bfloat16> found;
  std::vector<float> expected;

  compared_heads(std::int64_t of_sequences, std::int64_t of_heads, std::int64_t of_tokens, std::int64_t of_channels,
                 float noise)
      : sequences(of_sequences), heads(of_heads), tokens(of_tokens), channels(of_channels) {
    auto const count = static_cast<std::size_t>(sequences * heads * tokens * channels);
    found.resize(count);
    expected.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      float const value = load(store<bfloat16>(testing::gauss{}.value(1, i) - 0.3F));
      expected_view().data[i] = value;
    }
    std::size_t i = 0;
    for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
      for (std::int64_t head = 0; head < heads; ++head) {
        for (std::int64_t token = 0; token < tokens; ++token) {
          for (std::int64_t channel = 0; channel < channels; ++channel, ++i) {
            float const value = expected_view()(sequence, head, token, channel);
            found[i] = store<bfloat16>(value + noise * testing::gauss{}.value(2, i));
          }
        }
      }
    }
  }
  head_view<float> expected_view() {
    return head_view<float>(expected.data(), {sequences, tokens, heads, channels}).transposed(1, 2);
  }

  /// The score by the programs.
  template <class Executor>
  float score(Executor const& exec) {
    head_view<bfloat16 const> const first(found.data(), {sequences, heads, tokens, channels});
    compare_heads<bfloat16, float> compare{first, expected_view(), {}};
    std::vector<comparison_sums> sums(static_cast<std::size_t>(compare.groups()));
    compare.sums = sums;
    float result = -5.0F;
    exec.run(compare, compare.groups());
    exec.run(finish_comparison{sums, {&result, 1}}, 1);
    return result;
  }
  /// cosine * (1 - |a - b| / |b|), by a plain loop.
  double exact_score() {
    comparison_sums all{};
    std::size_t i = 0;
    for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
      for (std::int64_t head = 0; head < heads; ++head) {
        for (std::int64_t token = 0; token < tokens; ++token) {
          for (std::int64_t channel = 0; channel < channels; ++channel, ++i) {
            auto const a = static_cast<double>(load(found[i]));
            auto const b = static_cast<double>(expected_view()(sequence, head, token, channel));
            all.products += a * b;
            all.first += a * a;
            all.second += b * b;
            all.apart += std::fabs(a - b);
            all.size += std::fabs(b);
          }
        }
      }
    }
    return all.products / std::sqrt(all.first * all.second) * (1.0 - all.apart / all.size);
  }
};

}  // namespace

TEST_CASE("heads are compared as a loop compares them, whatever the extents and strides", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {1, 7, 127, 128, 129}) {
    for (std::int64_t const channels : {1, 64, 72}) {
      CAPTURE(tokens, channels);
      compared_heads problem(2, 3, tokens, channels, 0.1F);
      CHECK(static_cast<double>(problem.score(exec)) == Approx(problem.exact_score()).epsilon(1e-6));
    }
  }
}

TEST_CASE("equal heads have the score 1, also if they are zeros or there are none", "[host]") {
  cpu const exec{.threads = 1};
  CHECK(compared_heads(1, 2, 9, 8, 0.0F).score(exec) == 1.0F);
  CHECK(compared_heads(1, 2, 0, 8, 0.0F).score(exec) == 1.0F);
  compared_heads zeros(1, 1, 3, 8, 0.0F);
  zeros.found.assign(zeros.found.size(), bfloat16{0});
  zeros.expected.assign(zeros.expected.size(), 0.0F);
  CHECK(zeros.score(exec) == 1.0F);
}

TEST_CASE("comparing heads keeps the rules for programs", "[host]") {
  compared_heads problem(2, 2, 65, 40, 0.2F);
  CHECK(problem.score(testing::adversary{.seed = 8}) == problem.score(cpu{.threads = 1}));
}
