// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks attention on the CPU against the formula with attention's own codes.
#pragma once

#include <cstdint>

#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"
#include "support/quantized_reference.hpp"

namespace tessera_test {

/// Checks that the results are those of the formula with the codes. Values are up to about 5 in size, scores up to
/// about 30. Log-sum-exps are as exact as the sum of the softmax's weights: exponentials, or the numbers that codes of
/// weights stand for.
template <class Attention, class T>
void check_against_codes(attention_problem<T> const& p, double tolerance = 2e-3, double of_log_sum_exps = 2e-5) {
  tessera::attention_shape const& s = p.shape;
  CAPTURE(s.batch, s.query_heads, s.key_heads, s.queries, s.keys, s.channels);
  CAPTURE(p.options.is_causal, p.options.window_left, p.options.window_right);
  tessera::cpu const exec{.threads = 2};
  auto const made = make_operands<Attention>(exec, p);
  auto const expected = attention_by_codes(p, made);
  auto const found = run_attention_problem<Attention, float>(exec, p);
  CHECK(farthest(found.result, expected.result) < tolerance);
  CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < of_log_sum_exps);
}

template <class Attention>
void check_shape(tessera::attention_shape const& s, tessera::attention_options const& options = {}) {
  auto p = make_attention_problem<tessera::bfloat16>(s);
  p.options = options;
  check_against_codes<Attention>(p);
}

}  // namespace tessera_test
