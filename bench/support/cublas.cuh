// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Matrix products of cuBLAS to compare with: outputs (tokens x columns) = inputs * weights^T, row-major and dense, by
/// the fastest of the algorithms that cuBLASLt proposes.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <tessera/tile/gemm_operand.hpp>

#include "timing.cuh"

namespace bench {

inline void check(cublasStatus_t status, char const* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(std::string(what) + ": " + cublasLtGetStatusString(status));
  }
}

template <class T>
constexpr cudaDataType_t cublas_type() {
  if constexpr (std::is_same_v<T, tessera::bfloat16>) {
    return CUDA_R_16BF;
  } else if constexpr (std::is_same_v<T, tessera::float16>) {
    return CUDA_R_16F;
  } else if constexpr (std::is_same_v<T, tessera::float8_e4m3>) {
    return CUDA_R_8F_E4M3;
  } else if constexpr (std::is_same_v<T, std::int8_t>) {
    return CUDA_R_8I;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return CUDA_R_32I;
  } else {
    static_assert(std::is_same_v<T, float>);
    return CUDA_R_32F;
  }
}

/// Which operands of a product lie across its depth, as their transposes: inputs as depth x tokens, weights as depth x
/// columns.
struct operands_across {
  bool inputs = false;
  bool weights = false;
};

/// One product. 8-bit floats are multiplied with fast accumulation, which tensor cores do without further work.
template <class Operand, class Output>
class cublas_linear {
 public:
  using value_type = typename tessera::gemm_operand<Operand>::value_type;

  cublas_linear(device_memory& memory, std::int64_t tokens, std::int64_t columns, std::int64_t depth,
                operands_across across = {})
      : workspace_(memory, workspace_bytes) {
    constexpr bool is_integer = std::is_integral_v<Operand>;
    constexpr cublasComputeType_t compute = is_integer                               ? CUBLAS_COMPUTE_32I
                                            : std::is_same_v<Operand, tessera::tf32> ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                                     : CUBLAS_COMPUTE_32F;
    check(cublasLtCreate(&handle_), "cublasLtCreate");
    check(cublasLtMatmulDescCreate(&product_, compute, is_integer ? CUDA_R_32I : CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    // cuBLAS is column-major: its A is W with rows as columns, its result the transpose of ours.
    set(CUBLASLT_MATMUL_DESC_TRANSA, across.weights ? CUBLAS_OP_N : CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, across.inputs ? CUBLAS_OP_T : CUBLAS_OP_N);
    if constexpr (!is_integer && sizeof(value_type) == 1) {
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});
    }
    layout(weights_, cublas_type<value_type>(), across.weights ? columns : depth, across.weights ? depth : columns);
    layout(inputs_, cublas_type<value_type>(), across.inputs ? tokens : depth, across.inputs ? depth : tokens);
    layout(outputs_, cublas_type<Output>(), columns, tokens);
  }
  cublas_linear(cublas_linear const&) = delete;
  cublas_linear& operator=(cublas_linear const&) = delete;
  ~cublas_linear() {
    cublasLtMatrixLayoutDestroy(weights_);
    cublasLtMatrixLayoutDestroy(inputs_);
    cublasLtMatrixLayoutDestroy(outputs_);
    cublasLtMatmulDescDestroy(product_);
    cublasLtDestroy(handle_);
  }

  /// Times the proposed algorithms and keeps the fastest.
  void choose(value_type const* inputs, value_type const* weights, Output* outputs, cudaStream_t stream) {
    constexpr int most = 8;
    cublasLtMatmulPreference_t preference{};
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    std::size_t const bytes = workspace_bytes;
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                               sizeof bytes),
          "cublasLtMatmulPreferenceSetAttribute");
    cublasLtMatmulHeuristicResult_t proposed[most];
    int count = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle_, product_, weights_, inputs_, outputs_, outputs_, preference, most,
                                         proposed, &count),
          "cublasLtMatmulAlgoGetHeuristic");
    cublasLtMatmulPreferenceDestroy(preference);
    double best = 0;
    for (int i = 0; i < count; ++i) {
      cublasLtMatmulAlgo_t const candidate = proposed[i].algo;
      double const seconds = median_cold_seconds(stream, 5, [&](cudaStream_t s) {
        algorithm_ = candidate;
        run(inputs, weights, outputs, s);
      });
      if (i == 0 || seconds < best) {
        best = seconds;
        fastest_ = candidate;
      }
    }
    algorithm_ = fastest_;
  }

  void run(value_type const* inputs, value_type const* weights, Output* outputs, cudaStream_t stream) const {
    scale const one = 1;
    scale const zero = 0;
    check(cublasLtMatmul(handle_, product_, &one, weights, weights_, inputs, inputs_, &zero, outputs, outputs_, outputs,
                         outputs_, &algorithm_, workspace_.data(), workspace_bytes, stream),
          "cublasLtMatmul");
  }

 private:
  using scale = std::conditional_t<std::is_integral_v<Operand>, std::int32_t, float>;
  static constexpr std::size_t workspace_bytes = std::size_t{64} << 20;

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    check(cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }
  static void layout(cublasLtMatrixLayout_t& made, cudaDataType_t type, std::int64_t rows, std::int64_t columns) {
    check(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns),
                                     rows),
          "cublasLtMatrixLayoutCreate");
  }

  device_array<unsigned char> workspace_;
  cublasLtHandle_t handle_{};
  cublasLtMatmulDesc_t product_{};
  cublasLtMatrixLayout_t weights_{};
  cublasLtMatrixLayout_t inputs_{};
  cublasLtMatrixLayout_t outputs_{};
  cublasLtMatmulAlgo_t algorithm_{};
  cublasLtMatmulAlgo_t fastest_{};
};

}  // namespace bench
