// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Losses and gradients on the CPU in the forms that many tests use, and the formulas, compiled once for all tests (in
/// loss_runs.cpp).
#pragma once

#include <cstdint>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cpu.hpp>

#include "support/loss_gradient_reference.hpp"

namespace tessera_test {

/// A loss on tiles of 64 x 64, so that small problems have several.
template <class T, class Filter = tessera::gradient_filter<0>>
using loss_on_small_tiles =
    tessera::linear_loss<tessera::gemm_tile<T, tessera::shape<64, 64, 32 / static_cast<int>(sizeof(T))>>,
                         tessera::lse_reducer<float>, Filter>;

}  // namespace tessera_test

/// Gradients in the type of the inputs, after `template` or `extern template`.
#define TESSERA_TEST_GRADIENTS(words, loss, type, label)                              \
  words tessera_test::gradient_results<type> tessera_test::run_gradients<loss, type>( \
      tessera::cpu const&, tessera_test::loss_problem<type, label> const&, tessera_test::upstream_samples const&)

#define TESSERA_TEST_LOSS_FORMULAS(words, type, label)                                                             \
  words tessera_test::loss_reference tessera_test::reference_loss(tessera_test::loss_problem<type, label> const&); \
  words tessera_test::gradient_reference tessera_test::reference_gradient(                                         \
      tessera_test::loss_problem<type, label> const&, tessera_test::upstream_samples const&)

#define TESSERA_TEST_LOSS_RUNS(words)                                                                    \
  TESSERA_TEST_GRADIENTS(words, tessera_test::loss_on_small_tiles<float>, float, std::int64_t);          \
  TESSERA_TEST_GRADIENTS(words, tessera_test::loss_on_small_tiles<tessera::bfloat16>, tessera::bfloat16, \
                         std::int64_t);                                                                  \
  TESSERA_TEST_GRADIENTS(words, tessera::cut_cross_entropy, tessera::bfloat16, std::int32_t);            \
  TESSERA_TEST_GRADIENTS(words, tessera::exact_cross_entropy, tessera::bfloat16, std::int32_t);          \
  TESSERA_TEST_LOSS_FORMULAS(words, float, std::int64_t);                                                \
  TESSERA_TEST_LOSS_FORMULAS(words, tessera::bfloat16, std::int64_t);                                    \
  TESSERA_TEST_LOSS_FORMULAS(words, tessera::bfloat16, std::int32_t)

TESSERA_TEST_LOSS_RUNS(extern template);
