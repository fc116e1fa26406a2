// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The fast programs of compressed weights.
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/policy_of.hpp>
#include <tessera/program/weights/decode.cuh>
#include <tessera/program/weights/encode.cuh>
#include <tessera/tuning/weights/neuzip.hpp>

#include "run_program.hpp"

using namespace tessera;

using decode = decode_weights_on_warps<bfloat16, policy_of<neuzip_decode_tuning>(900)>;
using encode = encode_weights_on_warps<bfloat16, policy_of<neuzip_encode_tuning>(900)>;

extern "C" __global__ void decode_bf16(__grid_constant__ decode const program) {
  run_program(program);
}
extern "C" __global__ void encode_bf16(__grid_constant__ encode const program) {
  run_program(program);
}
