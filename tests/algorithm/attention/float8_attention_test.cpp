// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/attention/float8_attention.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/attention_check.hpp"
#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"
#include "support/quantized_reference.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using by_thread = scaled_float_quantizer<float8_e4m3, per_thread>;
using by_token = scaled_float_quantizer<float8_e4m3, per_token>;
/// 8-bit floats for queries and keys, and fine weights and values, so that errors of scores show.
using float8_scores = attention<smoothed<by_thread>, half_values>;

static_assert(ScoreQuantizer<smoothed<by_thread>> && ScoreQuantizer<smoothed<by_token, block_mean>>);
static_assert(!ScoreQuantizer<float8_quantizer<float8_e4m3>> && ScaleQuantizer<float8_quantizer<float8_e4m3>>);
static_assert(std::is_same_v<float8_scores::method::score_code, float8_e4m3>);

/// The relative error of results on a problem with the formula's results.
template <class Attention>
double error_on(attention_problem<bfloat16> const& p, attention_results const& expected) {
  return error_of(run_attention_problem<Attention, float>(cpu{.threads = 2}, p).result, expected.result).relative_l1;
}

}  // namespace

TEST_CASE("attention over 8-bit floats of queries and keys is right for its codes, whatever the extents", "[host]") {
  for (std::int64_t const tokens : {1, 63, 65, 129}) {
    check_shape<float8_scores>({1, 1, 1, tokens, 130, 32});
    check_shape<float8_scores>({1, 2, 1, 66, tokens, 32}, {.is_causal = true});
  }
  for (std::int64_t const channels : {16, 64, 80, 256}) {
    check_shape<float8_scores>({2, 2, 1, 20, 140, channels});
  }
}

TEST_CASE("8-bit floats of queries and keys have any granularity, and their queries may be smoothed", "[host]") {
  auto const p = make_attention_problem<bfloat16>({1, 2, 1, 70, 150, 32});
  check_against_codes<attention<scaled_float_quantizer<float8_e4m3, per_tensor>, half_values>>(p);
  check_against_codes<attention<smoothed<scaled_float_quantizer<float8_e4m3, per_block>>, half_values>>(p);
  check_against_codes<attention<scaled_float_quantizer<float8_e5m2, per_warp>, half_values>>(p);
  check_against_codes<attention<smoothed<smoothed<by_token>, block_mean>, half_values>>(p);
  check_against_codes<attention<scaled_float_quantizer<float16, per_token>, half_values>>(p);
}

TEST_CASE("scores of 8-bit floats go through the softmax without exponentials as well", "[host]") {
  auto p = make_attention_problem<bfloat16>({1, 2, 1, 70, 300, 64});
  check_against_codes<float8_attention>(p, 0.1, 0.02);
  p.options.softmax_scale = 2.0F;  // scores up to hundreds
  check_against_codes<float8_attention>(p, 0.5, 0.05);
}

TEST_CASE("8-bit floats of queries and keys are as close to the formula as 4 significant bits allow",
          "[host][threads]") {
  auto const p = make_attention_problem<bfloat16>({1, 2, 2, 130, 300, 64});
  auto const expected = attention_by_formula(p);
  double const float8 = error_on<float8_scores>(p, expected);
  double const int8 = error_on<finely>(p, expected);
  double const int4 = error_on<attention<smoothed<symmetric_quantizer<4, per_thread>>, half_values>>(p, expected);
  CAPTURE(float8, int8, int4);
  CHECK(float8 < 0.02);
  CHECK(float8 < 0.5 * int4);
  CHECK(int8 < float8);
}

TEST_CASE("attention over 8-bit floats of all operands is near the formula, also with one large key channel",
          "[host][threads]") {
  auto p = make_attention_problem<bfloat16>({1, 2, 1, 70, 1200, 64});
  p.options.is_causal = true;
  auto const near = [&](double most) {
    auto const found = run_attention_problem<float8_attention, float>(cpu{.threads = 2}, p);
    auto const expected = attention_by_formula(p);
    auto const error = error_of(found.result, expected.result);
    CAPTURE(error.relative_l1, error.cosine);
    CHECK(error.relative_l1 < most);
    CHECK(error.cosine > 0.999);
    CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 0.05);
  };
  near(0.01);
  for (std::size_t i = 0; i < p.keys.size(); i += 64) {
    p.keys[i] = store<bfloat16>(200.0F + static_cast<float>(load(p.keys[i])));  // an offset, which the mean takes away
  }
  near(0.01);
}

TEST_CASE("tokens with one large channel keep the precision of their others as 8-bit floats", "[host][threads]") {
  auto p = make_attention_problem<bfloat16>({1, 1, 1, 64, 256, 64});
  for (std::size_t i = 0; i < p.keys.size(); i += 64) {
    p.keys[i] = store<bfloat16>(i % 128 == 0 ? 300.0F : -300.0F);  // the queries do not see it
  }
  for (std::size_t i = 0; i < p.queries.size(); i += 64) {
    p.queries[i] = store<bfloat16>(0.0F);
  }
  auto const expected = attention_by_formula(p);
  double const float8 = error_on<attention<by_token, half_values>>(p, expected);
  double const int8 = error_on<attention<symmetric_quantizer<8, per_token>, half_values>>(p, expected);
  CAPTURE(float8, int8);
  CHECK(float8 < 0.1 * int8);
}

TEST_CASE("a key that is not finite spoils the queries that see its group of 8-bit floats, and no others", "[host]") {
  auto p = make_attention_problem<bfloat16>({1, 1, 1, 140, 140, 32});
  p.options.is_causal = true;
  p.keys[as_size(135 * 32 + 7)] = store<bfloat16>(std::numeric_limits<float>::infinity());
  using plain = attention<by_token, half_values>;
  auto const found = run_attention_problem<plain, float>(cpu{.threads = 1}, p);
  std::int64_t wrong = 0;
  for (std::int64_t query = 0; query < 140; ++query) {
    wrong += std::isnan(found.result[as_size(query * 32)]) == (query >= 135) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("attention over 8-bit floats keeps the rules for programs", "[host]") {
  auto p = make_attention_problem<bfloat16>({1, 2, 1, 70, 150, 32});
  p.options.is_causal = true;
  auto const one = run_attention_problem<float8_attention, bfloat16>(cpu{.threads = 1}, p);
  auto const other = run_attention_problem<float8_attention, bfloat16>(testing::adversary{.seed = 3}, p);
  CHECK(one.result == other.result);
  CHECK(one.log_sum_exp == other.log_sum_exp);
}
