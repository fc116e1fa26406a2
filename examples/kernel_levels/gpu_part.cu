// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// kernel_levels on a GPU: the same checks, the level that is sm_90a's alone, and times beside cuBLAS.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/gemm_tile.cuh>

#include "../support/failure.hpp"
#include "gpu_part.hpp"
#include "level_check.hpp"
#include "warpgroup_level.cuh"

namespace tessera_examples {
namespace {

void check_status(cudaError_t status, char const* what) {
  check_cuda(status, "kernel_levels", what);
}

/// Median over 7 of the mean seconds of `calls` calls, after one that warms up.
template <class Work>
double seconds_of(cudaStream_t stream, int calls, Work const& work) {
  cudaEvent_t begin{};
  cudaEvent_t end{};
  check_status(cudaEventCreate(&begin), "cudaEventCreate");
  check_status(cudaEventCreate(&end), "cudaEventCreate");
  work();
  std::array<double, 7> seconds{};
  for (double& one : seconds) {
    check_status(cudaEventRecord(begin, stream), "cudaEventRecord");
    for (int i = 0; i < calls; ++i) {
      work();
    }
    check_status(cudaEventRecord(end, stream), "cudaEventRecord");
    check_status(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds = 0;
    check_status(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    one = static_cast<double>(milliseconds) / 1000 / calls;
  }
  check_status(cudaEventDestroy(begin), "cudaEventDestroy");
  check_status(cudaEventDestroy(end), "cudaEventDestroy");
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

void add_time(text_table& table, char const* name, product const& whole, double seconds) {
  double const operations = 2.0 * static_cast<double>(whole.c.size()) * static_cast<double>(whole.a.extent(1));
  table.add({name, fixed(seconds * 1e3, 3), fixed(operations / seconds / 1e12, 1)});
}

template <class Level>
void time_level(cuda const& exec, text_table& table, product const& whole, Level const& level) {
  add_time(table, Level::name, whole, seconds_of(exec.stream, 3, [&] { exec.run(level, level.works()); }));
}

/// cuBLAS counts columns first, so its matrices are our transposes.
void time_cublas(cuda const& exec, text_table& table, product const& whole) {
  cublasHandle_t handle{};
  auto const check = [](cublasStatus_t status) {
    require(exit_code::unsound, status == CUBLAS_STATUS_SUCCESS, "cuBLAS: ", cublasGetStatusString(status));
  };
  check(cublasCreate(&handle));
  check(cublasSetStream(handle, exec.stream));
  float const one = 1;
  float const zero = 0;
  auto const rows = static_cast<int>(whole.c.extent(0));
  auto const columns = static_cast<int>(whole.c.extent(1));
  auto const depth = static_cast<int>(whole.a.extent(1));
  add_time(table, "cuBLAS", whole, seconds_of(exec.stream, 10, [&] {
             check(cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, columns, rows, depth, &one, whole.b.data, CUDA_R_16BF,
                                depth, whole.a.data, CUDA_R_16BF, depth, &zero, whole.c.data, CUDA_R_16BF, columns,
                                CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
           }));
  exec.wait();
  check(cublasDestroy(handle));
}

}  // namespace

bool has_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

bool check_on_gpu(text_table& table) {
  cuda const exec;
  bool right = check_portable_levels(exec, "GPU", table);
  if (exec.has<warpgroup_level>()) {
    for (product_data const& data : products_to_check()) {
      product_there<cuda> const there(exec, data);
      if (has_aligned_rows(there.whole().a) && has_aligned_rows(there.whole().b)) {
        right = check_level(exec, "GPU", data, warpgroup_level::of(there.whole()), there, table) && right;
      }
    }
  }
  return right;
}

void time_on_gpu() {
  cuda const exec;
  constexpr std::int64_t size = 4096;
  product_there<cuda> const there(exec, product_data::made(size, size, size));
  product const& whole = there.whole();
  text_table table({"4096 x 4096 x 4096", "ms", "TFLOP/s"}, 1);
  time_level(exec, table, whole, plain_level{whole});
  time_level(exec, table, whole, tiled_level{{whole}});
  time_level(exec, table, whole, pipelined_level{{whole}});
  if (exec.has<warpgroup_level>()) {
    time_level(exec, table, whole, warpgroup_level::of(whole));
  }
  time_cublas(exec, table, whole);
  std::printf("\n");
  table.print(stdout);
}

}  // namespace tessera_examples
