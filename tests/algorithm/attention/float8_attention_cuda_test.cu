// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/algorithm/attention/float8_attention.hpp>
#include <tessera/exec/explain.hpp>
#include <tessera/map/linear_bias.hpp>

#include "algorithm/attention/attention_checks.cuh"
#include "algorithm/attention/attention_codes_on_device.cuh"
#include "support/listed_tiles.cuh"
#include "support/score_functions.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using by_thread = scaled_float_quantizer<float8_e4m3, per_thread>;
using e4m3 = float8_quantizer<float8_e4m3>;
/// With the paper's exponentials, and without means.
using float8_exponentials = attention<by_thread, e4m3>;
using float8_without_means = attention<by_thread, e4m3, piecewise_linear_softmax>;
/// With mean queries, whose scores are added.
using float8_smoothed_queries = attention<smoothed<smoothed<by_thread>, block_mean>, e4m3, piecewise_linear_softmax>;
/// In a granularity that only the portable program has.
using float8_by_token = attention<smoothed<scaled_float_quantizer<float8_e4m3, per_token>>, e4m3>;

/// How far results may be from those of another program over the same codes.
struct float8_tolerance {
  double relative_l1 = 6e-3;
  /// The part of the largest score that tensor cores of sm_90 may take from any. They cut products off at 13 bits below
  /// the largest addend: 256 products of one sign lose up to 256 / 2^14 of their sum.
  double of_score = 0;
};

/// Checks log-sum-exps, whose weights are rounded otherwise and whose scores are short by parts of them.
void check_log_sum_exps(std::vector<double> const& found, std::vector<double> const& expected,
                        float8_tolerance const& tolerance) {
  if (tolerance.of_score == 0) {
    return check_log_sum_exps_against_host(found, expected);
  }
  double largest = 0;
  for (double const one : expected) {
    largest = std::isfinite(one) ? std::max(largest, std::fabs(one)) : largest;
  }
  CHECK(farthest(found, expected) < 0.0607 + tolerance.of_score * largest);
}

/// Checks codes bit for bit, and results within what sums of 13 bits on tensor cores of sm_89 and sm_90 leave; whether
/// codes of queries are made before, as they are where log-sum-exps are asked for, or by the program itself.
template <class Attention = float8_attention, class T = bfloat16>
void check_float8(attention_problem<T> const& p, head_layout layout = head_layout::heads_first,
                  float8_tolerance const& tolerance = {}) {
  attention_shape const& s = p.shape;
  CAPTURE(s.batch, s.query_heads, s.key_heads, s.queries, s.keys, s.channels, static_cast<int>(layout));
  CAPTURE(p.options.is_causal, p.options.window_left, p.options.window_right, p.query_lengths, p.key_lengths);
  tessera::cuda const exec;
  auto const found = run_on_device<Attention, T>(exec, p, layout);
  CHECK(found.is_clean);
  check_codes<Attention>(found.bytes, p);
  auto const expected = run_attention_problem<Attention, T>(cpu{}, p);
  bool const is_zero = std::all_of(expected.result.begin(), expected.result.end(), [](double x) { return x == 0; });
  auto const apart = is_zero ? 0.0 : error_of(found.found.result, expected.result).relative_l1;
  CHECK((is_zero ? found.found.result == expected.result : apart < tolerance.relative_l1));
  CAPTURE(apart);
  check_log_sum_exps(found.found.log_sum_exp, expected.log_sum_exp, tolerance);
  auto const itself = run_on_device<Attention, T>(exec, p, layout, false);
  CHECK(itself.is_clean);
  CHECK(farthest(itself.found.result, found.found.result) == 0);
}
template <class Attention = float8_attention, class T = bfloat16>
void check_float8_shape(attention_shape const& s, attention_options const& options = {},
                        head_layout layout = head_layout::heads_first) {
  auto p = make_attention_problem<T>(s);
  p.options = options;
  check_float8<Attention, T>(p, layout);
}

/// Checks that the program for sm_90a and the portable one, over the same codes, are near each other and the formula
/// for these codes.
template <class Attention = float8_attention>
void check_against_portable(attention_problem<bfloat16> const& p, float8_tolerance const& tolerance = {}) {
  attention_shape const& s = p.shape;
  CAPTURE(s.queries, s.keys, s.channels, p.options.is_causal, p.options.softmax_scale);
  device_codes<Attention> const codes(p);
  CHECK(codes.by_warpgroups(codes.work_splits()) == is_hopper());
  auto const found = codes.whole();
  auto const portable = codes.portable();
  auto const by_codes = attention_by_codes(p, make_operands<Attention>(cpu{}, p));
  CHECK(error_of(found.result, portable.result).relative_l1 < tolerance.relative_l1);
  CHECK(error_of(codes.shared().result, portable.result).relative_l1 < tolerance.relative_l1);
  CHECK(error_of(found.result, by_codes.result).relative_l1 < tolerance.relative_l1);
  check_log_sum_exps(found.log_sum_exp, portable.log_sum_exp, tolerance);
}

/// What a call of attention over 128 channels would run on an H200.
template <class Attention>
explanation explain_float8(std::int64_t queries) {
  return explain(cuda::described({}), [&](auto const& dry) {
    attention_shape const s{1, 32, 8, queries, 16384, 128};
    auto const heads = [&](std::int64_t count, std::int64_t tokens) {
      auto* const nowhere = reinterpret_cast<bfloat16*>(std::uintptr_t{1} << 30);
      return head_view<bfloat16>(nowhere, {1, count, tokens, 128});
    };
    auto const plan = Attention::plan_forward(dry, s);
    workspace const space(plan, {reinterpret_cast<std::byte*>(std::uintptr_t{1} << 30), plan.bytes()});
    attention_inputs<bfloat16> const in{heads(32, queries), heads(8, 16384), heads(8, 16384)};
    Attention::forward(dry, in, {}, attention_outputs<bfloat16>{heads(32, queries)}, space);
  });
}

}  // namespace

TEST_CASE("codes of 8-bit floats on a GPU are those of the host to the last bit, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {16, 64, 80, 128, 144, 256}) {
    for (std::int64_t const tokens : {1, 7, 16, 127, 128, 129, 1100}) {
      check_codes_against_host<float8_attention>({1, 2, 1, tokens, 200, channels});
      check_codes_against_host<float8_attention>({2, 2, 2, 50, tokens, channels}, head_layout::tokens_first);
    }
    for (head_layout const layout : {head_layout::heads_first, head_layout::shifted}) {
      check_codes_against_host<float8_exponentials>({2, 6, 2, 300, 500, channels}, layout);
      check_codes_against_host<float8_smoothed_queries>({2, 6, 2, 300, 500, channels}, layout);
      check_codes_against_host<float8_attention, float16>({1, 2, 1, 300, 500, channels}, layout);
    }
  }
}

TEST_CASE("attention over 8-bit floats on a GPU agrees with the host, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    for (std::int64_t const tokens : {0, 1, 7, 127, 128, 129, 193, 500}) {
      check_float8_shape({1, 2, 2, tokens, tokens, channels});
      check_float8_shape({1, 2, 1, tokens, tokens, channels}, {.is_causal = true});
    }
    check_float8_shape({1, 2, 1, 129, 0, channels});
    check_float8_shape({0, 2, 1, 10, 10, channels});
    check_float8_shape({2, 4, 2, 193, 300, channels}, {.is_causal = true}, head_layout::tokens_first);
    check_float8_shape({2, 4, 2, 193, 300, channels}, {}, head_layout::shifted);
    check_float8_shape<float8_exponentials>({1, 4, 2, 300, 500, channels}, {.is_causal = true});
    check_float8_shape<float8_attention, float16>({1, 2, 1, 300, 500, channels});
  }
  check_float8_shape({1, 2, 1, 300, 500, 80});
  check_float8_shape<float8_by_token>({1, 2, 1, 70, 300, 64});
}

TEST_CASE("windows, lengths and sinks are the same over 8-bit floats on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    for (std::int64_t const left : {0, 5, 200}) {
      for (std::int64_t const right : {-1, 0, 70}) {
        attention_options options;
        options.window_left = left;
        options.window_right = right;
        check_float8_shape({1, 2, 1, 500, 400, channels}, options);
      }
    }
    auto p = make_attention_problem<bfloat16>({4, 2, 2, 200, 300, channels});
    p.query_lengths = {200, 0, 77, 5};
    p.key_lengths = {300, 128, 0, 9};
    check_float8(p);
    p.options.is_causal = true;
    p.sinks = {0.5F, -1.0F};
    check_float8(p);
  }
}

TEST_CASE("the program for sm_90a takes 8-bit floats, and agrees with the portable program and the formula", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {48, 64, 128, 256}) {
    for (std::int64_t const queries : {1, 5, 16}) {
      check_against_portable(make_attention_problem<bfloat16>({2, 4, 2, queries, 3000, channels}));
    }
    auto p = make_attention_problem<bfloat16>({1, 4, 2, 300, 1100, channels});
    check_against_portable(p);
    check_against_portable<float8_exponentials>(p);
    p.options.is_causal = true;
    check_against_portable(p);
    check_against_portable<float8_smoothed_queries>(p);
  }
}

TEST_CASE("scores of 8-bit floats may all be negative, zero or large", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    auto p = make_attention_problem<bfloat16>({1, 2, 1, 300, 700, channels});
    p.options.softmax_scale = 30.0F;
    check_float8(p, head_layout::heads_first, {.relative_l1 = 0.02, .of_score = 1.0 / 64});
    auto ones = p;
    for (auto* of : {&ones.queries, &ones.keys}) {
      for (auto& value : *of) {
        value = store<bfloat16>(load(value) < 0 ? -1.0F : 1.0F);
      }
    }
    for (float const softmax_scale : {1.0F, 1e4F, 1e20F}) {  // sums of ones are exact, and few keys have all the weight
      ones.options.softmax_scale = softmax_scale;
      check_against_portable<float8_exponentials>(ones);
      check_against_portable<float8_without_means>(ones);
    }
    p.options.softmax_scale = 0.0F;
    for (auto& query : p.queries) {
      query = store<bfloat16>(-std::fabs(load(query)));
    }
    for (auto& key : p.keys) {
      key = store<bfloat16>(std::fabs(load(key)));
    }
    check_against_portable<float8_exponentials>(p, {.of_score = 1.0 / 64});
    check_float8<float8_exponentials>(p, head_layout::heads_first, {.of_score = 1.0 / 64});
    std::fill(p.queries.begin(), p.queries.end(), store<bfloat16>(0.0F));
    check_against_portable(p);
    std::fill(p.keys.begin(), p.keys.end(), store<bfloat16>(-0.0F));
    check_against_portable<float8_exponentials>(p);
  }
}

TEST_CASE("infinities and NaNs reach the same results of 8-bit floats on a GPU as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    for (float const bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      for (int const where : {0, 1, 2}) {
        CAPTURE(channels, bad, where);
        auto p = make_attention_problem<bfloat16>({1, 2, 1, 400, 500, channels});
        p.options.is_causal = true;
        auto& of = where == 0 ? p.queries : where == 1 ? p.keys : p.values;
        of[as_size(333 * channels + 5)] = store<bfloat16>(bad);
        auto const found = run_on_device<float8_attention, bfloat16>(tessera::cuda{}, p, head_layout::heads_first);
        auto const itself =
            run_on_device<float8_attention, bfloat16>(tessera::cuda{}, p, head_layout::heads_first, false);
        check_codes<float8_attention>(found.bytes, p);
        auto const expected = run_attention_problem<float8_attention, bfloat16>(cpu{}, p);
        std::int64_t wrong = 0;
        std::int64_t nans = 0;
        double apart = 0;
        for (std::size_t i = 0; i < expected.result.size(); ++i) {
          nans += std::isnan(expected.result[i]) ? 1 : 0;
          wrong += std::isnan(found.found.result[i]) == std::isnan(expected.result[i]) ? 0 : 1;
          wrong += std::isnan(itself.found.result[i]) == std::isnan(expected.result[i]) ? 0 : 1;
          apart += std::isnan(expected.result[i]) ? 0 : std::fabs(found.found.result[i] - expected.result[i]);
        }
        CHECK(wrong == 0);
        CHECK(nans > 0);
        CHECK(apart < 0.02 * static_cast<double>(expected.result.size()));
      }
    }
  }
}

TEST_CASE("biases and lists of tiles are for 8-bit floats on a GPU, too", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (std::int64_t const channels : {64, 128, 256}) {
    CAPTURE(channels);
    auto p = make_attention_problem<bfloat16>({2, 4, 2, 200, 700, channels});
    p.options.is_causal = true;
    p.key_lengths = {700, 300};
    slope_bias const bias{0.02F};
    auto const found = run_on_device<float8_attention, bfloat16>(exec, p, head_layout::tokens_first, true,
                                                                 attention_functions<slope_bias>{bias});
    auto const expected = run_attention_problem<float8_attention, bfloat16>(cpu{}, p, bias);
    CHECK(found.is_clean);
    CHECK(error_of(found.found.result, expected.result).relative_l1 < 6e-3);
    CHECK(farthest(found.found.log_sum_exp, expected.log_sum_exp) < 0.0607);
    std::vector<float> const slopes{0.5F, 0.1F, 0.02F, 0.0F};
    auto const there = to_device(exec, slopes);
    auto const line = run_on_device<float8_attention, bfloat16>(
        exec, p, head_layout::heads_first, true, attention_functions<linear_bias>{linear_bias{there.view()}});
    auto const of_line = run_attention_problem<float8_attention, bfloat16>(cpu{}, p, linear_bias{slopes});
    CHECK(error_of(line.found.result, of_line.result).relative_l1 < 6e-3);
    for (list_kind const kind : {list_kind::half, list_kind::hostile, list_kind::empty}) {
      set_lists(p, kind);
      check_listed<float8_attention>(p);
    }
  }
}

TEST_CASE("programs say why they take 8-bit floats of queries and keys, or not", "[cuda]") {
  auto const fast = explain_float8<float8_attention>(16384);
  CAPTURE(fast.text());
  CHECK(fast.is_fast());
  CHECK(fast.text().find("quantized_forward (TMA, wgmma)") != std::string::npos);
  CHECK(fast.text().find("quantize_heads") != std::string::npos);
  auto const by_token = explain_float8<float8_by_token>(16384);
  CAPTURE(by_token.text());
  CHECK(!by_token.is_fast());
  CHECK(by_token.text().find("scales of queries and keys are not per_thread") != std::string::npos);
  auto const decode = explain_float8<float8_attention>(1);
  CAPTURE(decode.text());
  CHECK(decode.is_fast());
  CHECK(decode.text().find("quantized_forward (TMA, wgmma)") != std::string::npos);
}
