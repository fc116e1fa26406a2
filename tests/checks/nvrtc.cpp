// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiles programs at run time with NVRTC, as a user's process would: portable ones and one that is CUDA's own, in a
// kernel written as text. Needs no GPU. Its arguments are NVRTC's options, which name the folders to include from.
//
// NVRTC has no standard library. The headers that ours include are handed to it as text that takes their names from
// the toolkit's libcu++.
#include <nvrtc.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr char const* kernels = R"(
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

extern "C" __global__ void decode_bf16(decode program, long long count) { run(program, count); }
extern "C" __global__ void encode_fp8(encode program, long long count) { run(program, count); }
)";

int failed(char const* what, nvrtcResult result) {
  std::fprintf(stderr, "%s: %s\n", what, nvrtcGetErrorString(result));
  return 1;
}

/// How the compiler's own function fills a string.
template <class Size, class Text>
std::string text_of(nvrtcProgram program, Size size_of, Text fill) {
  std::size_t size = 0;
  if (size_of(program, &size) != NVRTC_SUCCESS) {
    return {};
  }
  std::string text(size, '\0');
  return fill(program, text.data()) == NVRTC_SUCCESS ? text : std::string();
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<char const*> const names{"bit",     "concepts", "cstddef",     "cstdint",
                                       "cstring", "limits",   "type_traits", "utility"};
  std::vector<std::string> texts;
  for (char const* const name : names) {
    texts.push_back("#pragma once\n#include <cuda/std/" + std::string(name) +
                    ">\nnamespace std { using namespace cuda::std; }\n");
  }
  std::vector<char const*> headers;
  for (std::string const& text : texts) {
    headers.push_back(text.c_str());
  }
  nvrtcProgram program = nullptr;
  if (nvrtcResult const made = nvrtcCreateProgram(&program, kernels, "kernels.cu", static_cast<int>(headers.size()),
                                                  headers.data(), names.data());
      made != NVRTC_SUCCESS) {
    return failed("nvrtcCreateProgram", made);
  }
  nvrtcResult const compiled = nvrtcCompileProgram(program, count - 1, arguments + 1);
  std::printf("%s", text_of(program, nvrtcGetProgramLogSize, nvrtcGetProgramLog).c_str());
  if (compiled != NVRTC_SUCCESS) {
    return failed("nvrtcCompileProgram", compiled);
  }
  std::string const cubin = text_of(program, nvrtcGetCUBINSize, nvrtcGetCUBIN);
  for (char const* const kernel : {"decode_bf16", "encode_fp8"}) {
    if (cubin.find(kernel) == std::string::npos) {
      std::fprintf(stderr, "the %zu bytes compiled hold no kernel %s\n", cubin.size(), kernel);
      return 1;
    }
  }
  nvrtcDestroyProgram(&program);
  std::printf("compiled to %zu bytes\n", cubin.size());
  return 0;
}
