// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/attention/attention_score.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// The score of 1 x 2 heads.
template <class Executor>
float score_of(Executor const& exec, std::vector<float> const& found, std::vector<float> const& expected,
               std::int64_t tokens, std::int64_t channels) {
  std::vector<float> score{-77.0F};
  auto const plan = attention_score::plan_measure(exec, {1, 2, 2, tokens, tokens, channels});
  buffer<std::byte> memory(exec, plan.bytes());
  head_view<float const> const a(found.data(), {1, 2, tokens, channels});
  head_view<float const> const b(expected.data(), {1, 2, tokens, channels});
  attention_score::measure(exec, a, b, score, workspace(plan, memory));
  exec.wait();
  return score[0];
}

std::vector<float> samples(std::uint64_t seed, std::int64_t count) {
  return attention_samples<float>(testing::gauss{}, seed, 1, count);
}

}  // namespace

TEST_CASE("a score is cosine times one minus the relative L1 error", "[host]") {
  cpu const exec;
  for (std::int64_t const tokens : {1, 7, 300}) {
    auto const expected = samples(1, 2 * tokens * 48);
    auto found = expected;
    auto const noise = samples(2, 2 * tokens * 48);
    for (std::size_t i = 0; i < found.size(); ++i) {
      found[i] += 0.2F * noise[i];
    }
    auto const error = error_of(as_doubles(found), as_doubles(expected));
    float const score = score_of(exec, found, expected, tokens, 48);
    CHECK(static_cast<double>(score) == Approx(error.cosine * (1 - error.relative_l1)).epsilon(1e-6));
    CHECK(score == score_of(testing::adversary{.seed = 4}, found, expected, tokens, 48));
  }
}

TEST_CASE("equal results score 1, also zeros and nothing, and a NaN scores NaN", "[host]") {
  cpu const exec{.threads = 1};
  auto values = samples(3, 2 * 5 * 16);
  CHECK(score_of(exec, values, values, 5, 16) == 1.0F);
  std::vector<float> const zeros(2 * 5 * 16);
  CHECK(score_of(exec, zeros, zeros, 5, 16) == 1.0F);
  CHECK(score_of(exec, {}, {}, 0, 16) == 1.0F);
  CHECK(std::isnan(score_of(exec, zeros, values, 5, 16)));
  auto const expected = values;
  values[77] = NAN;
  CHECK(std::isnan(score_of(exec, values, expected, 5, 16)));
}

TEST_CASE("8 bits score higher than 4 against a reference", "[host]") {
  cpu const exec;
  auto const p = make_attention_problem<bfloat16>({1, 2, 2, 64, 256, 64});
  auto const expected = attention_by_formula(p).result;
  std::vector<float> const truth(expected.begin(), expected.end());
  auto const score = [&](attention_results const& found) {
    return score_of(exec, std::vector<float>(found.result.begin(), found.result.end()), truth, 64, 64);
  };
  float const four = score(run_attention_problem<sage_attention2_int4, float>(exec, p));
  float const eight = score(run_attention_problem<sage_attention2, float>(exec, p));
  CAPTURE(four, eight);
  CHECK(four < eight);
  CHECK(eight > 0.95F);
}

TEST_CASE("layers below a threshold, or among the lowest, need more bits", "[host]") {
  std::vector<float> const scores{0.99F, 0.5F, 0.9F, NAN, 0.9F};
  CHECK(layers_in_need(scores, 0.8F) == std::vector<bool>{false, true, false, true, false});
  CHECK(layers_in_need(scores, 0.0F, 0.5F) == std::vector<bool>{false, true, true, true, false});
  CHECK(layers_in_need(scores, 0.0F, 1.0F) == std::vector<bool>(5, true));
  CHECK(layers_in_need({}, 0.5F, 0.5F).empty());
  CHECK_THROWS_AS(layers_in_need(scores, 0.5F, 1.5F), value_error);
  CHECK_THROWS_AS(layers_in_need(scores, 0.5F, std::nanf("")), value_error);
  CHECK_THROWS_WITH(layers_in_need(scores, std::nanf("")), "layers_in_need: the threshold is nan but must be a number");
}

TEST_CASE("a score says what does not fit together", "[host]") {
  cpu const exec{.threads = 1};
  std::vector<float> const values(64);
  std::vector<float> score(2);
  auto const plan = attention_score::plan_measure(exec, {1, 2, 1, 2, 7, 16});
  buffer<std::byte> memory(exec, plan.bytes());
  head_view<float const> const a(values.data(), {1, 2, 2, 16});
  head_view<float const> const b(values.data(), {1, 2, 1, 16});
  workspace const space(plan, memory);
  try {
    attention_score::measure(exec, a, b, {score.data(), 1}, space);
    FAIL("nothing thrown");
  } catch (shape_error const& e) {
    CHECK_THAT(e.what(), contains("dimension 2 of what was found has 2 elements but that of what was expected 1"));
  }
  CHECK_THROWS_AS(attention_score::measure(exec, a, a, score, space), shape_error);
  array_view<float> const one(score.data(), 1);
  head_view<float const> const nothing(nullptr, {1, 2, 2, 16});
  CHECK_THROWS_WITH(attention_score::measure(exec, nothing, a, one, space),
                    "attention_score.measure: the heads that were found have no memory but 64 elements");
  CHECK_THROWS_WITH(attention_score::measure(exec, a, nothing, one, space),
                    "attention_score.measure: the heads that were expected have no memory but 64 elements");
  CHECK_THROWS_WITH(attention_score::measure(exec, a, a, {nullptr, 1}, space),
                    "attention_score.measure: the scores have no memory but 1 elements");
  workspace_plan const empty("attention_score.measure");
  CHECK_THROWS_WITH(attention_score::measure(exec, a, a, one, workspace(empty, memory)),
                    "attention_score.measure: the workspace is of a plan of 0 bytes but 1 x 2 heads of 2 tokens of 16 "
                    "channels need " +
                        std::to_string(plan.bytes()));
}
