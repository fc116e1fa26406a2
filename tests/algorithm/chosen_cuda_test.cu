// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// compiled alone: what it includes, and in which order, is what it tests.
// Calls mean the same where programs for CUDA are included before what they belong to, as in papers_cuda_test.cu.
#include <tessera/algorithm/attention/attention.cuh>
#include <tessera/algorithm/attention/decode_attention.cuh>
#include <tessera/algorithm/attention/dense_attention.cuh>
#include <tessera/algorithm/attention/quantized_attention.cuh>
#include <tessera/algorithm/gemm/linear.cuh>
#include <tessera/algorithm/loss/linear_loss.cuh>
#include <tessera/algorithm/loss/linear_loss_gradients.cuh>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.cuh>
#include <tessera/algorithm/paged_cache/paged_cache.cuh>
#include <tessera/algorithm/subspace/factorize_keys.cuh>
#include <tessera/algorithm/subspace/subspace_search.cuh>
#include <tessera/algorithm/weights/compressed_weights.cuh>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/side_queue.cuh>
#include <tessera/sage_attention2.hpp>
#include <tessera/tile/cuda/gemm_tile.cuh>

#include "support/chosen_for_cuda.cuh"
