// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// SageAttention2 on CUDA devices as several benchmarks measure it, compiled once for all of them (in
/// attention_runs.cu).
#pragma once

#include <tessera/algorithm/attention/attention.cuh>
#include <tessera/exec/cuda.cuh>
#include <tessera/sage_attention2.hpp>

namespace bench {

using quantize_bf16 = tessera::quantize_call<tessera::sage_attention2::method, tessera::bfloat16>;
using attend_bf16 = tessera::attention_call<tessera::sage_attention2::method, tessera::bfloat16>;

}  // namespace bench

/// Declares or defines the functions after `extern template` or `template`. The last one asks what a kernel of run()
/// needs, and so has it compiled, too.
#define TESSERA_BENCH_ATTENTION(words)                                               \
  words void tessera::run(tessera::cuda const&, bench::quantize_bf16 const&);        \
  words void tessera::run(tessera::cuda const&, bench::attend_bf16 const&);          \
  words bool tessera::codes_queries(tessera::cuda const&, bench::attend_bf16 const&, \
                                    tessera::head_view<tessera::bfloat16 const> const&)

TESSERA_BENCH_ATTENTION(extern template);
