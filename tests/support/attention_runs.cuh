// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Attention on CUDA devices by the methods that many tests use, compiled once for all of them (in attention_runs*.cu);
/// see attention_runs.hpp.
#pragma once

#include <tessera/algorithm/attention/attention.cuh>
#include <tessera/algorithm/attention/float8_attention.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/sage_attention2.hpp>

#include "support/attention_runs.hpp"
#include "support/take_call.cuh"

namespace tessera_test {

using e4m3_values = tessera::float8_quantizer<tessera::float8_e4m3>;
using eight_with_value_means = tessera::attention<tessera::smoothed<eight>, tessera::smoothed<e4m3_values>>;
using four_bits =
    tessera::attention<tessera::smoothed<tessera::symmetric_quantizer<4, tessera::per_thread>>, e4m3_values>;
/// sage_attention2 with smoothed queries.
using smoothed_queries =
    tessera::attention<tessera::smoothed<tessera::smoothed<eight, tessera::sampled_mean>, tessera::block_mean>,
                       tessera::sampled_range<tessera::float8_quantizer<tessera::float8_e4m3>>,
                       tessera::piecewise_linear_softmax>;

/// The quantizer of queries and keys of attention over 8-bit floats.
using float8_by_thread = tessera::scaled_float_quantizer<tessera::float8_e4m3, tessera::per_thread>;
/// Its paper's method: with exponentials, and without means.
using float8_exponentials = tessera::attention<float8_by_thread, e4m3_values>;
/// With mean queries, whose scores are added.
using float8_smoothed_queries =
    tessera::attention<tessera::smoothed<tessera::smoothed<float8_by_thread>, tessera::block_mean>, e4m3_values,
                       tessera::piecewise_linear_softmax>;

}  // namespace tessera_test

/// Declares or defines the method's functions after `template` or `extern template`. The last one asks what a kernel of
/// run() needs, and so has it compiled, too.
#define TESSERA_TEST_ATTENTION_ON_DEVICES(words, attention, type)                                                  \
  words void tessera::run(tessera::cuda const&, tessera::quantize_call<attention::method, type> const&);           \
  words void tessera::run(tessera::cuda const&, tessera::attention_call<attention::method, type> const&);          \
  words void tessera::run_portably(tessera::cuda const&, tessera::attention_call<attention::method, type> const&); \
  words bool tessera::codes_queries(tessera::cuda const&, tessera::attention_call<attention::method, type> const&, \
                                    tessera::head_view<type const> const&)

/// The same for methods whose calls are also given to programs for sm_90a alone.
#define TESSERA_TEST_ATTENTION_ON_HOPPER(words, attention, type)        \
  TESSERA_TEST_ATTENTION_ON_DEVICES(words, attention, type);            \
  words bool tessera_test::take_call<tessera::quantized_forward_model>( \
      tessera::cuda const&, tessera::attention_call<attention::method, type> const&)

#define TESSERA_TEST_ATTENTION_RUNS_ON_DEVICES(words)                                               \
  TESSERA_TEST_ATTENTION_ON_HOPPER(words, tessera::sage_attention2, tessera::bfloat16);             \
  TESSERA_TEST_ATTENTION_ON_HOPPER(words, tessera_test::eight_with_value_means, tessera::bfloat16); \
  TESSERA_TEST_ATTENTION_ON_DEVICES(words, tessera_test::four_bits, tessera::bfloat16);             \
  TESSERA_TEST_ATTENTION_ON_DEVICES(words, tessera_test::smoothed_queries, tessera::bfloat16);      \
  TESSERA_TEST_ATTENTION_ON_DEVICES(words, tessera::sage_attention2_int4, tessera::bfloat16);       \
  TESSERA_TEST_ATTENTION_ON_DEVICES(words, tessera::sage_attention2, tessera::float16);             \
  TESSERA_TEST_ATTENTION_ON_HOPPER(words, tessera_test::eight_with_value_means, tessera::float16);  \
  TESSERA_TEST_ATTENTION_ON_HOPPER(words, tessera::float8_attention, tessera::bfloat16);            \
  TESSERA_TEST_ATTENTION_ON_HOPPER(words, tessera_test::float8_exponentials, tessera::bfloat16);    \
  TESSERA_TEST_ATTENTION_ON_HOPPER(words, tessera_test::float8_smoothed_queries, tessera::bfloat16)

TESSERA_TEST_ATTENTION_RUNS_ON_DEVICES(extern template);
