// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The fast programs of a loss: logits to statistics; the gradient by the logits; products with it.
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/policy_of.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/program/gemm/gemm_pingpong.cuh>
#include <tessera/program/loss/gradient_products.cuh>
#include <tessera/program/loss/logit_gradient.cuh>
#include <tessera/program/loss/reduce_logits.cuh>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/tile/row_schedule.hpp>
#include <tessera/tuning/loss/linear_loss.hpp>

#include "run_program.hpp"

using namespace tessera;

using statistics = reduce_loss_rows<bfloat16, lse_reducer<float>, identity_logits>;
using reduction = gemm_pingpong<bfloat16, row_schedule, statistics, policy_of<warpgroup_loss_tuning>(900)>;
using write_gradient = write_loss_gradient<bfloat16, identity_logits>;
using gradient =
    gemm_pingpong<bfloat16, loss_tiles_of_part, write_gradient, policy_of<warpgroup_loss_gradient_tuning>(900)>;
using products = loss_gradient_products<bfloat16, bfloat16, policy_of<warpgroup_loss_product_tuning>(900)>;
using wide_products = loss_gradient_products<bfloat16, bfloat16, policy_of<wide_warpgroup_loss_product_tuning>(900)>;
using early_gradient =
    gemm_pingpong<bfloat16, early_loss_tiles, write_gradient, policy_of<warpgroup_loss_gradient_tuning>(900)>;
using short_products = loss_gradient_products<bfloat16, float, policy_of<warpgroup_loss_product_tuning>(900), true>;

extern "C" __global__ void reduce_logits(__grid_constant__ reduction const program) {
  run_program(program);
}
extern "C" __global__ void logit_gradient(__grid_constant__ gradient const program) {
  run_program(program);
}
extern "C" __global__ void gradient_products(__grid_constant__ products const program) {
  run_program(program);
}
extern "C" __global__ void wide_gradient_products(__grid_constant__ wide_products const program) {
  run_program(program);
}
extern "C" __global__ void early_logit_gradient(__grid_constant__ early_gradient const program) {
  run_program(program);
}
extern "C" __global__ void short_gradient_products(__grid_constant__ short_products const program) {
  run_program(program);
}
