// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Losses on CUDA devices in the forms that many tests use, compiled once for all of them (in loss_runs*.cu).
#pragma once

#include <tessera/algorithm/loss/linear_loss.cuh>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cuda.cuh>

/// A forward pass after `template` or `extern template`.
#define TESSERA_TEST_LOSS_ON_DEVICES(words, type, statistics) \
  words void tessera::run(                                    \
      tessera::cuda const&,                                   \
      tessera::logit_reduction<tessera::loss_gemm_tile<type>, tessera::loss_reducer<tessera::statistics>> const&)

/// A backward pass with gradients in another type, perhaps.
#define TESSERA_TEST_LOSS_GRADIENTS_ON_DEVICES(words, type, statistics, filter, gradient)                            \
  words void tessera::run(                                                                                           \
      tessera::cuda const&,                                                                                          \
      tessera::loss_gradient_call<                                                                                   \
          tessera::detail::loss_gradient_regions<                                                                    \
              tessera::loss_gemm_tile<type>, tessera::loss_reducer<tessera::statistics>, tessera::filter, gradient>, \
          tessera::identity_logits> const&)

#define TESSERA_TEST_BF16_LOSS_ON_DEVICES(words)                                                                   \
  TESSERA_TEST_LOSS_ON_DEVICES(words, tessera::bfloat16, lse_reducer<float>);                                      \
  TESSERA_TEST_LOSS_GRADIENTS_ON_DEVICES(words, tessera::bfloat16, lse_reducer<float>, gradient_filter<0>,         \
                                         tessera::bfloat16);                                                       \
  TESSERA_TEST_LOSS_GRADIENTS_ON_DEVICES(words, tessera::bfloat16, lse_reducer<float>, gradient_filter<0>, float); \
  TESSERA_TEST_LOSS_GRADIENTS_ON_DEVICES(words, tessera::bfloat16, lse_reducer<float>,                             \
                                         gradient_filter_for<tessera::bfloat16>, tessera::bfloat16);               \
  TESSERA_TEST_LOSS_GRADIENTS_ON_DEVICES(words, tessera::bfloat16, lse_reducer<float>,                             \
                                         gradient_filter_for<tessera::bfloat16>, float)

#define TESSERA_TEST_BF16_STATISTICS_ON_DEVICES(words)                                                  \
  TESSERA_TEST_LOSS_ON_DEVICES(words, tessera::bfloat16, loss_statistics);                              \
  TESSERA_TEST_LOSS_GRADIENTS_ON_DEVICES(words, tessera::bfloat16, loss_statistics, gradient_filter<0>, \
                                         tessera::bfloat16);                                            \
  TESSERA_TEST_LOSS_GRADIENTS_ON_DEVICES(words, tessera::bfloat16, loss_statistics,                     \
                                         gradient_filter_for<tessera::bfloat16>, tessera::bfloat16)

#define TESSERA_TEST_FP16_LOSS_ON_DEVICES(words)                                                          \
  TESSERA_TEST_LOSS_ON_DEVICES(words, tessera::float16, lse_reducer<float>);                              \
  TESSERA_TEST_LOSS_GRADIENTS_ON_DEVICES(words, tessera::float16, lse_reducer<float>, gradient_filter<0>, \
                                         tessera::float16)

TESSERA_TEST_BF16_LOSS_ON_DEVICES(extern template);
TESSERA_TEST_BF16_STATISTICS_ON_DEVICES(extern template);
TESSERA_TEST_FP16_LOSS_ON_DEVICES(extern template);
