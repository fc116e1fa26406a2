// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// NeuZip on the GPU, lossless in three precisions. There are no rows where there is no GPU.
#include <cuda_runtime_api.h>

#include <tessera/exec/cuda.cuh>

#include "neuzip_measurement.hpp"

namespace tessera_examples {

report_rows neuzip_cuda_rows(report_options const& options) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    return {};
  }
  cudaDeviceProp properties;
  tessera::check_cuda(cudaGetDeviceProperties(&properties, 0), "memory_report", "cudaGetDeviceProperties");
  tessera::cuda const exec;
  constexpr std::int64_t bytes_for_speed = std::int64_t{512} << 20;
  return lossless_neuzip_rows(exec, properties.name, options, bytes_for_speed);
}

}  // namespace tessera_examples
