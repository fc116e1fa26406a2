// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Attention over 8-bit floats, for tests on a GPU: its methods, and what results are compared with.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "algorithm/attention/attention_checks.cuh"
#include "algorithm/attention/attention_codes_on_device.cuh"

namespace tessera_test {

using namespace tessera;

/// float8_attention without means.
using float8_without_means = attention<float8_by_thread, float8_quantizer<float8_e4m3>, piecewise_linear_softmax>;
/// In a granularity that only the portable program has.
using float8_by_token =
    attention<smoothed<scaled_float_quantizer<float8_e4m3, per_token>>, float8_quantizer<float8_e4m3>>;

/// How far results may be from those of another program over the same codes.
struct float8_tolerance {
  double relative_l1 = 6e-3;  ///< of results
  /// The part of the largest score that tensor cores of sm_90 may take from any. They cut products off at 13 bits below
  /// the largest addend: 256 products of one sign lose up to 256 / 2^14 of their sum.
  double of_score = 0;
};

/// Checks log-sum-exps, whose weights are rounded otherwise and whose scores are short by parts of them.
inline void check_log_sum_exps_of_float8(std::vector<double> const& found, std::vector<double> const& expected,
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
  check_log_sum_exps_of_float8(found.found.log_sum_exp, expected.log_sum_exp, tolerance);
  auto const itself = run_on_device<Attention, T>(exec, p, layout, false);
  CHECK(itself.is_clean);
  CHECK(farthest(itself.found.result, found.found.result) == 0);
}
/// The same for an attention over random operands.
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
  check_log_sum_exps_of_float8(found.log_sum_exp, portable.log_sum_exp, tolerance);
}

}  // namespace tessera_test
