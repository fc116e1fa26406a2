// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include "algorithm/attention/attention_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

using e4m3 = float8_quantizer<float8_e4m3>;
using float8_attention = attention<smoothed<scaled_float_quantizer<float8_e4m3, per_token>>, e4m3>;

/// Checks codes bit for bit, and results within what sums of 13 bits on tensor cores of sm_89 and sm_90 leave.
void check_on_device(attention_shape const& s, attention_options const& options, head_layout layout) {
  CAPTURE(s.queries, s.keys, s.channels, static_cast<int>(layout));
  auto p = make_attention_problem<bfloat16>(s);
  p.options = options;
  auto const found = run_on_device<float8_attention, bfloat16>(tessera::cuda{}, p, layout);
  CHECK(found.is_clean);
  check_codes<float8_attention>(found.bytes, p);
  auto const expected = run_attention_problem<float8_attention, bfloat16>(cpu{}, p);
  CHECK(error_of(found.found.result, expected.result).relative_l1 < 0.01);
  CHECK(farthest(found.found.log_sum_exp, expected.log_sum_exp) < 0.02);
}

}  // namespace

TEST_CASE("attention over 8-bit floats of queries and keys is the same on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  attention_options causal;
  causal.is_causal = true;
  check_on_device({2, 4, 2, 70, 300, 64}, {}, head_layout::heads_first);
  check_on_device({1, 2, 2, 200, 200, 128}, causal, head_layout::tokens_first);
  check_on_device({1, 2, 1, 5, 600, 80}, causal, head_layout::shifted);
  check_on_device({1, 1, 1, 130, 140, 256}, {}, head_layout::heads_first);
}
