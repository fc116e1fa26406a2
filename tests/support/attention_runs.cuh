// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Attention on CUDA devices by the methods that many tests use, compiled once for all of them (in attention_runs*.cu);
/// see attention_runs.hpp.
#pragma once

#include <tessera/algorithm/attention/attention.cuh>
#include <tessera/exec/cuda.cuh>
#include <tessera/sage_attention2.hpp>

#include "support/attention_runs.hpp"

namespace tessera_test {

using eight_with_value_means =
    tessera::attention<tessera::smoothed<eight>, tessera::smoothed<tessera::float8_quantizer<tessera::float8_e4m3>>>;

}  // namespace tessera_test

/// Declares or defines the method's functions after `template` or `extern template`. The last one asks what a kernel of
/// run() needs, and so has it compiled, too.
#define TESSERA_TEST_ATTENTION_ON_DEVICES(words, attention, type)                                                  \
  words void tessera::run(tessera::cuda const&, tessera::quantize_call<attention::method, type> const&);           \
  words void tessera::run(tessera::cuda const&, tessera::attention_call<attention::method, type> const&);          \
  words void tessera::run_portably(tessera::cuda const&, tessera::attention_call<attention::method, type> const&); \
  words bool tessera::codes_queries(tessera::cuda const&, tessera::attention_call<attention::method, type> const&, \
                                    tessera::head_view<type const> const&)

#define TESSERA_TEST_ATTENTION_RUNS_ON_DEVICES(words)                                    \
  TESSERA_TEST_ATTENTION_ON_DEVICES(words, tessera::sage_attention2, tessera::bfloat16); \
  TESSERA_TEST_ATTENTION_ON_DEVICES(words, tessera_test::eight_with_value_means, tessera::bfloat16)

TESSERA_TEST_ATTENTION_RUNS_ON_DEVICES(extern template);
