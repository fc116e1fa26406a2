// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Offloaded caches of bf16 on CUDA devices, in the forms that many tests use, compiled once for all of them (in
/// offload_runs*.cu). Elements: what values of the host are kept as.
#pragma once

#include <cstdint>

#include <tessera/algorithm/offloaded_cache/offloaded_cache.cuh>
#include <tessera/exec/cuda.cuh>
#include <tessera/shadow_kv.hpp>

namespace tessera_test {

using landmarks = tessera::landmark_selector<8>;
using coded_landmarks = tessera::coded_landmark_selector<8>;

}  // namespace tessera_test

/// Programs of a cache with an element, after `template` or `extern template`.
#define TESSERA_TEST_OFFLOADED_ELEMENTS(words, element)                                                        \
  words void tessera::run(tessera::cuda const&, tessera::append_tokens<tessera::bfloat16, element> const&);    \
  words void tessera::run(tessera::cuda const&, tessera::attend_chunks<tessera::bfloat16, element> const&);    \
  words void tessera::run(tessera::cuda const&, tessera::assign_slots<tessera::bfloat16, element> const&);     \
  words void tessera::run(tessera::cuda const&, tessera::choose_outliers<tessera::bfloat16, element> const&);  \
  words void tessera::run(tessera::cuda const&, tessera::copy_exact<tessera::bfloat16, element> const&);       \
  words void tessera::run(tessera::cuda const&, tessera::fill_ring<tessera::bfloat16, element> const&);        \
  words void tessera::run(tessera::cuda const&, tessera::rebuild_keys<tessera::bfloat16, element> const&);     \
  words void tessera::run(tessera::cuda const&, tessera::project_archived<tessera::bfloat16, element> const&); \
  words void tessera::run(tessera::cuda const&, tessera::add_to_gram<tessera::bfloat16, element> const&);      \
  words void tessera::run(tessera::cuda const&, tessera::finish_steps<tessera::bfloat16, element> const&);     \
  words void tessera::run(tessera::cuda const&, tessera::merge_chunks<tessera::bfloat16, element, float> const&)

/// Programs of a cache with a selector.
#define TESSERA_TEST_OFFLOADED_SELECTOR(words, selector)                                                        \
  words void tessera::run(tessera::cuda const&, tessera::score_chunks<tessera::bfloat16, selector> const&);     \
  words void tessera::run(tessera::cuda const&, tessera::select_chunks<tessera::bfloat16, selector> const&);    \
  words void tessera::run(tessera::cuda const&, tessera::summarize_prompt<tessera::bfloat16, selector> const&); \
  words void tessera::run(tessera::cuda const&,                                                                 \
                          tessera::archive_chunks<tessera::bfloat16, selector, tessera::exact_values> const&)

/// Programs that find a prompt's directions.
#define TESSERA_TEST_OFFLOADED_DIRECTIONS(words)                                                     \
  words void tessera::run(tessera::cuda const&, tessera::gram_call<tessera::bfloat16> const&);       \
  words void tessera::run(tessera::cuda const&, tessera::projection_call<tessera::bfloat16> const&); \
  words void tessera::run(tessera::cuda const&, tessera::subspace_search<tessera::bfloat16> const&)

TESSERA_TEST_OFFLOADED_ELEMENTS(extern template, tessera::bfloat16);
TESSERA_TEST_OFFLOADED_ELEMENTS(extern template, std::int8_t);
TESSERA_TEST_OFFLOADED_SELECTOR(extern template, tessera_test::landmarks);
TESSERA_TEST_OFFLOADED_SELECTOR(extern template, tessera_test::coded_landmarks);
TESSERA_TEST_OFFLOADED_DIRECTIONS(extern template);
