// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Portable programs of weights, in warps.
#include <tessera/program/weights/decode.hpp>
#include <tessera/program/weights/encode.hpp>
#include <tessera/tile/cuda/group.cuh>

using namespace tessera;

template <class Program>
__device__ void run(Program const& program, long long count) {
  __shared__ typename Program::scratch_type scratch;
  for (long long i = blockIdx.x; i < count; i += gridDim.x) {
    program(cuda_warp{}, i, scratch);
    __syncwarp();
  }
}

using decode = decode_weights<bfloat16, keep_mantissa<7>>;
using encode = encode_weights<float8_e4m3, keep_mantissa<3>>;

extern "C" __global__ void decode_bf16(decode program, long long count) {
  run(program, count);
}
extern "C" __global__ void encode_fp8(encode program, long long count) {
  run(program, count);
}
