// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// compiled alone: what it includes, and in which order, is what it tests.
// Calls mean the same where programs for CUDA are included before what they belong to, as in papers_cuda_test.cu.
#include <tessera/algorithm/attention.cuh>
#include <tessera/algorithm/compressed_weights.cuh>
#include <tessera/algorithm/decode_attention.cuh>
#include <tessera/algorithm/factorize_keys.cuh>
#include <tessera/algorithm/linear.cuh>
#include <tessera/algorithm/linear_loss.cuh>
#include <tessera/algorithm/linear_loss_gradients.cuh>
#include <tessera/algorithm/offloaded_cache.cuh>
#include <tessera/algorithm/paged_cache.cuh>
#include <tessera/algorithm/quantized_attention.cuh>
#include <tessera/algorithm/subspace_search.cuh>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/side_queue.cuh>
#include <tessera/sage_attention2.hpp>
#include <tessera/tile/cuda/gemm_tile.cuh>

#include "support/chosen_for_cuda.cuh"
