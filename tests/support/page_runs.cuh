// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Caches of pages on CUDA devices in the form that many tests use, compiled once for all (in page_runs.cu).
#pragma once

#include <tessera/algorithm/paged_cache/paged_cache.cuh>
#include <tessera/exec/cuda.cuh>
#include <tessera/minicache.hpp>

/// Appending to a cache of bf16 and attention to it, after `template` or `extern template`.
#define TESSERA_TEST_PAGES_ON_DEVICES(words)                                                                   \
  words void tessera::run(tessera::cuda const&,                                                                \
                          tessera::cache_append_call<tessera::slerp_merger<float>, tessera::bfloat16> const&); \
  words void tessera::run(tessera::cuda const&, tessera::cached_attention_call<tessera::bfloat16, float> const&)

TESSERA_TEST_PAGES_ON_DEVICES(extern template);
