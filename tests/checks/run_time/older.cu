// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fast programs of GPUs before sm_90: weights, logits of a loss, attention over pages.
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/policy_of.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/program/gemm/gemm_ring.cuh>
#include <tessera/program/loss/reduce_logits.cuh>
#include <tessera/program/paged_cache/attend_pages_by_warps.cuh>
#include <tessera/program/paged_cache/detail/page_fragments.cuh>
#include <tessera/program/weights/decode.cuh>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/tile/row_schedule.hpp>
#include <tessera/tuning/attention/decode.hpp>
#include <tessera/tuning/loss/linear_loss.hpp>
#include <tessera/tuning/weights/neuzip.hpp>

#include "run_program.hpp"

using namespace tessera;

using decode = decode_weights_on_warps<bfloat16, policy_of<neuzip_decode_tuning>(800)>;
constexpr gemm_ring_policy policy = loss_ring_policy(sizeof(loss_row_memory<lse_reducer<float>, 1>));
using statistics = reduce_loss_rows<bfloat16, lse_reducer<float>, identity_logits, policy.columns / 64>;
using reduction = gemm_ring<bfloat16, row_schedule, statistics, policy>;
using attend =
    page_decode_by_warps<page_columns<64, 1, 4, 4>, bfloat16, bfloat16, policy_of<page_decode_tuning<64, 4>>(800)>;

extern "C" __global__ void decode_bf16(__grid_constant__ decode const program) {
  run_program(program);
}
extern "C" __global__ void reduce_logits(__grid_constant__ reduction const program) {
  run_program(program);
}
extern "C" __global__ void attend_pages(__grid_constant__ attend const program) {
  run_program(program);
}
