// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Attention on the CPU by the methods that many tests use, compiled once for all of them (in attention_runs.cpp).
#pragma once

#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

#include "support/attention_reference.hpp"
#include "support/quantized_reference.hpp"

namespace tessera_test {

using eight = tessera::symmetric_quantizer<8, tessera::per_thread>;
using half_values = tessera::scaled_float_quantizer<tessera::float16>;
/// A method whose weights are rounded to 11 bits only, so that errors show.
using finely = tessera::attention<tessera::smoothed<eight>, half_values>;
using finely_int4 = tessera::attention<
    tessera::smoothed<tessera::smoothed<tessera::symmetric_quantizer<4, tessera::per_thread>>, tessera::block_mean>,
    tessera::smoothed<half_values>>;

}  // namespace tessera_test

/// Runs of a method, after `template` or `extern template`: results in `result` for inputs in `type`.
#define TESSERA_TEST_ATTENTION(words, method, result, type)                                  \
  words tessera_test::attention_results                                                      \
  tessera_test::run_attention_problem<method, result, tessera::cpu, type, tessera::no_bias>( \
      tessera::cpu const&, tessera_test::attention_problem<type> const&, tessera::no_bias const&)

/// Operands of a method for inputs in bf16, and the formula's results for them; after `template` or `extern template`.
#define TESSERA_TEST_OPERANDS(words, method)                                                                      \
  words tessera_test::made_operands<method> tessera_test::make_operands<method, tessera::cpu, tessera::bfloat16>( \
      tessera::cpu const&, tessera_test::attention_problem<tessera::bfloat16> const&);                            \
  words tessera_test::attention_results tessera_test::attention_by_codes<method, tessera::bfloat16>(              \
      tessera_test::attention_problem<tessera::bfloat16> const&, tessera_test::made_operands<method> const&,      \
      tessera_test::reference_bias const&)

#define TESSERA_TEST_ATTENTION_RUNS(words)                                                            \
  TESSERA_TEST_ATTENTION(words, tessera::sage_attention2, tessera::bfloat16, tessera::bfloat16);      \
  TESSERA_TEST_ATTENTION(words, tessera::sage_attention2, float, tessera::bfloat16);                  \
  TESSERA_TEST_ATTENTION(words, tessera::sage_attention2_int4, tessera::bfloat16, tessera::bfloat16); \
  TESSERA_TEST_ATTENTION(words, tessera::sage_attention2_int4, float, tessera::bfloat16);             \
  TESSERA_TEST_ATTENTION(words, tessera_test::finely, tessera::bfloat16, tessera::bfloat16);          \
  TESSERA_TEST_ATTENTION(words, tessera_test::finely, float, tessera::bfloat16);                      \
  TESSERA_TEST_ATTENTION(words, tessera_test::finely_int4, float, tessera::bfloat16);                 \
  TESSERA_TEST_OPERANDS(words, tessera::sage_attention2);                                             \
  TESSERA_TEST_OPERANDS(words, tessera::sage_attention2_int4);                                        \
  TESSERA_TEST_OPERANDS(words, tessera_test::finely);                                                 \
  TESSERA_TEST_OPERANDS(words, tessera_test::finely_int4)

TESSERA_TEST_ATTENTION_RUNS(extern template);
