// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// SageAttention2 on CUDA devices as several benchmarks measure it, compiled once for all of them (in
/// attention_runs.cu).
#pragma once

#include <tessera/algorithm/attention/attention.cuh>
#include <tessera/exec/cuda.cuh>
#include <tessera/sage_attention2.hpp>

/// Declares or defines the functions after `extern template` or `template`.
#define TESSERA_BENCH_ATTENTION(words)                                                                         \
  words void tessera::run(tessera::cuda const&,                                                                \
                          tessera::quantize_call<tessera::sage_attention2::method, tessera::bfloat16> const&); \
  words void tessera::run(tessera::cuda const&,                                                                \
                          tessera::attention_call<tessera::sage_attention2::method, tessera::bfloat16> const&)

TESSERA_BENCH_ATTENTION(extern template);
