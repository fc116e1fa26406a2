// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks of quantized attention on a GPU against the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithm/attention/attention_on_device.cuh"

namespace tessera_test {

using namespace tessera;

/// Checks log-sum-exps: sums of weights that are rounded to e4m3 differ by a rounding at most, and by far less if there
/// are many.
inline void check_log_sum_exps_against_host(std::vector<double> const& found, std::vector<double> const& expected) {
  CHECK(farthest(found, expected) < 0.0607);  // log(17 / 16)
  double sum = 0;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::isfinite(expected[i])) {
      sum += std::fabs(found[i] - expected[i]);
      ++count;
    }
  }
  CHECK(sum <= 0.012 * static_cast<double>(count));
}

/// Checks codes bit for bit.
template <class Attention, class T = bfloat16>
void check_codes_against_host(attention_shape const& s, head_layout layout = head_layout::heads_first) {
  CAPTURE(s.queries, s.keys, s.channels, static_cast<int>(layout));
  auto const p = make_attention_problem<T>(s);
  check_codes<Attention>(run_on_device<Attention, T>(tessera::cuda{}, p, layout).bytes, p);
}

/// Checks results against the portable program on the host, and codes bit for bit.
template <class Attention = sage_attention2, class T = bfloat16>
void check_against_host(attention_problem<T> const& p, head_layout layout = head_layout::heads_first) {
  attention_shape const& s = p.shape;
  CAPTURE(s.batch, s.query_heads, s.key_heads, s.queries, s.keys, s.channels, static_cast<int>(layout));
  CAPTURE(p.options.is_causal, p.options.window_left, p.options.window_right);
  tessera::cuda const exec;
  auto const found = run_on_device<Attention, T>(exec, p, layout);
  CHECK(found.is_clean);
  check_codes<Attention>(found.bytes, p);
  auto const expected = run_attention_problem<Attention, T>(cpu{}, p);
  if (s.batch * s.queries > 0) {
    double const size = std::max(error_of(found.found.result, expected.result).relative_l1, 0.0);
    bool const is_zero = std::all_of(expected.result.begin(), expected.result.end(), [](double x) { return x == 0; });
    CHECK((is_zero ? found.found.result == expected.result : size < 4e-3));
  }
  check_log_sum_exps_against_host(found.found.log_sum_exp, expected.log_sum_exp);
}

template <class Attention = sage_attention2, class T = bfloat16>
void check_shape_against_host(attention_shape const& s, attention_options const& options = {},
                              head_layout layout = head_layout::heads_first) {
  auto p = make_attention_problem<T>(s);
  p.options = options;
  check_against_host<Attention, T>(p, layout);
}

}  // namespace tessera_test
