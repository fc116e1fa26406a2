// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The fast program of quantized attention.
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/policy_of.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/lane_weights.cuh>
#include <tessera/program/attention/quantized_forward.cuh>
#include <tessera/reduce/piecewise_linear_softmax.hpp>
#include <tessera/tuning/attention/attention.hpp>

#include "run_program.hpp"

using namespace tessera;

using weighing = attention_weighing<piecewise_linear_softmax, no_bias, false, signed char>;
using forward = warpgroup_attention<64, weighing, bfloat16, policy_of<warpgroup_attention_tuning<64>>(900)>;

extern "C" __global__ void attention_forward(__grid_constant__ forward const program) {
  run_program(program);
}
