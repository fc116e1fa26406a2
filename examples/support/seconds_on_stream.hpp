// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `seconds_on_stream`: the time that work takes on a CUDA stream.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>

#include <tessera/exec/cuda.cuh>

namespace tessera_examples {

/// The median over 7 of the mean seconds of `calls` calls of `work`, which enqueues it, after `first` calls that warm
/// up.
template <class Work>
double seconds_on_stream(cudaStream_t stream, int first, int calls, Work const& work) {
  auto const check = [](cudaError_t status, char const* what) {
    tessera::check_cuda(status, "seconds_on_stream", what);
  };
  cudaEvent_t begin{};
  cudaEvent_t end{};
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  for (int i = 0; i < first; ++i) {
    work();
  }
  std::array<double, 7> seconds{};
  for (double& one : seconds) {
    check(cudaEventRecord(begin, stream), "cudaEventRecord");
    for (int i = 0; i < calls; ++i) {
      work();
    }
    check(cudaEventRecord(end, stream), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    one = static_cast<double>(milliseconds) / 1000 / calls;
  }
  check(cudaEventDestroy(begin), "cudaEventDestroy");
  check(cudaEventDestroy(end), "cudaEventDestroy");
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace tessera_examples
