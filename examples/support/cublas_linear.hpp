// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `cublas_linear`: inputs * weights^T in bf16 by cuBLAS, for comparison.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <tessera/core/bfloat16.hpp>
#include <tessera/view/matrix_view.hpp>

#include "failure.hpp"

namespace tessera_examples {

/// A product on one stream. cuBLAS is column-major, so its matrices are our transposes.
class cublas_linear {
 public:
  explicit cublas_linear(cudaStream_t stream) {
    check(cublasCreate(&handle_), "cublasCreate");
    check(cublasSetStream(handle_, stream), "cublasSetStream");
  }
  ~cublas_linear() { cublasDestroy(handle_); }
  cublas_linear(cublas_linear const&) = delete;
  cublas_linear& operator=(cublas_linear const&) = delete;

  /// Multiplies. inputs: tokens x depth; weights: columns x depth; outputs: tokens x columns. Rows lie one after the
  /// other.
  void run(tessera::matrix_view<tessera::bfloat16 const> inputs, tessera::matrix_view<tessera::bfloat16 const> weights,
           tessera::matrix_view<tessera::bfloat16> outputs) const {
    float const one = 1;
    float const zero = 0;
    auto const columns = static_cast<int>(weights.extent(0));
    auto const depth = static_cast<int>(weights.extent(1));
    check(cublasGemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, columns, static_cast<int>(inputs.extent(0)), depth, &one,
                       weights.data, CUDA_R_16BF, depth, inputs.data, CUDA_R_16BF, depth, &zero, outputs.data,
                       CUDA_R_16BF, columns, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
  }

 private:
  static void check(cublasStatus_t status, char const* what) {
    require(exit_code::unsound, status == CUBLAS_STATUS_SUCCESS, what, ": ", cublasGetStatusString(status));
  }
  cublasHandle_t handle_{};
};

}  // namespace tessera_examples
