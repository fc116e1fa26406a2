// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// compiled alone: what it includes, and in which order, is what it tests.
// In a CUDA source a paper's header is enough: it brings its programs for CUDA and the executor. Those of no paper say
// so themselves. Tested by being compiled; another file, algorithm/chosen_cuda_test.cu, means the same.
#include <tessera/algorithm/attention/decode_attention.hpp>
#include <tessera/algorithm/attention/dense_attention.hpp>
#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/minicache.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/shadow_kv.hpp>

#include "support/chosen_for_cuda.cuh"
