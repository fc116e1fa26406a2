// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiles programs at run time with NVRTC, as a user's process would. Needs no GPU. The first argument is a source of
// kernels (run_time/*.cu), the others are NVRTC's options, which name the folders to include from.
//
// NVRTC has no standard library. The headers that ours include are handed to it as text that takes their names from
// the toolkit's libcu++. <math.h> is empty, since NVRTC knows its functions.
#include <nvrtc.h>

#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

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

/// The names of the kernels in a source.
std::vector<std::string> kernels_in(std::string const& source) {
  std::string const begin = "extern \"C\" __global__ void ";
  std::vector<std::string> names;
  for (std::size_t at = source.find(begin); at != std::string::npos; at = source.find(begin, at)) {
    at += begin.size();
    names.push_back(source.substr(at, source.find('(', at) - at));
  }
  return names;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "there is no source among the arguments\n");
    return 1;
  }
  std::ifstream file(arguments[1]);
  std::string const kernels{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::vector<std::string> const wanted = kernels_in(kernels);
  if (wanted.empty()) {
    std::fprintf(stderr, "%s holds no kernels\n", arguments[1]);
    return 1;
  }
  std::vector<char const*> const names{"bit",    "concepts",    "cstddef", "cstdint", "cstring",
                                       "limits", "type_traits", "utility", "math.h"};
  std::vector<std::string> texts;
  for (char const* const name : names) {
    bool const is_known = std::string(name) == "math.h";
    texts.push_back(is_known ? "#pragma once\n"
                             : "#pragma once\n#include <cuda/std/" + std::string(name) +
                                   ">\nnamespace std { using namespace cuda::std; }\n");
  }
  std::vector<char const*> headers;
  for (std::string const& text : texts) {
    headers.push_back(text.c_str());
  }
  nvrtcProgram program = nullptr;
  if (nvrtcResult const created = nvrtcCreateProgram(&program, kernels.c_str(), arguments[1],
                                                     static_cast<int>(headers.size()), headers.data(), names.data());
      created != NVRTC_SUCCESS) {
    return failed("nvrtcCreateProgram", created);
  }
  nvrtcResult const compiled = nvrtcCompileProgram(program, count - 2, arguments + 2);
  std::printf("%s", text_of(program, nvrtcGetProgramLogSize, nvrtcGetProgramLog).c_str());
  if (compiled != NVRTC_SUCCESS) {
    return failed("nvrtcCompileProgram", compiled);
  }
  // There is a cubin where the options name a GPU, such as sm_90a, and not where they name PTX, such as compute_90a.
  std::string const cubin = text_of(program, nvrtcGetCUBINSize, nvrtcGetCUBIN);
  std::string const made = cubin.empty() ? text_of(program, nvrtcGetPTXSize, nvrtcGetPTX) : cubin;
  for (std::string const& kernel : wanted) {
    if (made.find(kernel) == std::string::npos) {
      std::fprintf(stderr, "the %zu bytes compiled hold no kernel %s\n", made.size(), kernel.c_str());
      return 1;
    }
  }
  nvrtcDestroyProgram(&program);
  std::printf("%zu kernels compiled to %zu bytes\n", wanted.size(), made.size());
  return 0;
}
