// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

struct early_error {
  double relative_l1;
  double log_sum_exp;  ///< the largest error of a log-sum-exp
};

/// The error of the rows before `end` of each head.
early_error error_before(std::int64_t end, attention_problem<bfloat16> const& p) {
  attention_shape const& s = p.shape;
  auto found = run_attention_problem<sage_attention2, bfloat16>(cpu{}, p);
  auto expected = attention_by_formula(p);
  double apart = 0;
  for (std::int64_t row = 0; row < s.query_heads * s.queries; ++row) {
    if (row % s.queries < end) {
      apart = std::max(apart, std::fabs(found.log_sum_exp[as_size(row)] - expected.log_sum_exp[as_size(row)]));
    } else {
      std::fill_n(found.result.begin() + row * s.channels, s.channels, 0.0);
      std::fill_n(expected.result.begin() + row * s.channels, s.channels, 0.0);
    }
  }
  return {error_of(found.result, expected.result).relative_l1, apart};
}

}  // namespace

TEST_CASE("outliers among the last keys ruin no row that sees none of their groups", "[host]") {
  for (std::int64_t const keys : {257, 300}) {
    auto p = make_attention_problem<bfloat16>({1, 2, 2, keys, keys, 64}, 7);
    p.options.is_causal = true;
    std::int64_t const end = (keys - 1) / 128 * 128;  // scales are of keys of one tile of 128
    auto const clean = error_before(end, p);
    CHECK(clean.relative_l1 < 0.015);
    for (std::int64_t const outliers : {1, 3}) {
      for (std::int64_t token = std::max(keys - outliers, end); token < keys; ++token) {
        p.keys[as_size(token * 64 + 5)] = p.keys[as_size((keys + token) * 64 + 5)] = store<bfloat16>(1e5F);
      }
      auto const found = error_before(end, p);
      CAPTURE(keys, outliers, clean.relative_l1, clean.log_sum_exp, found.relative_l1, found.log_sum_exp);
      CHECK(found.relative_l1 < 1.1 * clean.relative_l1);
      CHECK(found.log_sum_exp < 1.5 * clean.log_sum_exp);
    }
  }
}

TEST_CASE("an outlier in the sample of keys does not ruin the rows before it", "[host][slow]") {
  constexpr std::int64_t keys = 1100;
  auto p = make_attention_problem<bfloat16>({1, 1, 1, keys, keys, 64}, 7);
  p.options.is_causal = true;
  std::int64_t const step = sampled_mean::sample.step(keys);
  std::int64_t const token = token_sample::token(sampled_mean::sample.count(keys) - 9, step);
  std::int64_t const end = token / 128 * 128;
  auto const clean = error_before(end, p);
  p.keys[as_size(token * 64 + 5)] = store<bfloat16>(-1e5F);
  auto const found = error_before(end, p);
  CAPTURE(step, token, clean.relative_l1, found.relative_l1);
  CHECK(step == 2);
  CHECK(found.relative_l1 < 1.1 * clean.relative_l1);
}
