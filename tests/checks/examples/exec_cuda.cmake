# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Examples that make executors for CUDA, also those of headers for all executors.
tessera_check_pieces(WITH_NVCC nvcc "#include \"checks/examples/exec_cuda.hpp\""
  config.hpp ""
  exec/cuda.cuh "cudaStream_t s"
  exec/cuda_memory.cuh "cudaStream_t s, std::int64_t count, tessera::pinned_memory& pinned"
  exec/execution_options.hpp ""
  exec/explain.hpp:2 "tessera::matrix_view<tessera::bfloat16 const> inputs, \
    tessera::matrix_view<tessera::bfloat16 const> weights, tessera::matrix_view<tessera::bfloat16> outputs"
  exec/observer.hpp ""
  exec/policy_of.hpp ""
  exec/run.hpp:2
    "std::enable_if_t<std::is_same_v<models_for<tessera::cuda, scores>::type, models_for_scores>, scores> const&")
if(TARGET CUDA::cusolver OR NOT TESSERA_HAVE_CUDA)
  tessera_check_pieces(WITH_NVCC nvcc "#include <tessera/exec/buffer.hpp>"
    exec/cuda_eigenvectors.cuh "tessera::cuda const& exec, double* matrix, tessera::array_view<double> values, \
      tessera::array_view<std::int32_t> info")
else()  # its header needs cuSOLVER
  tessera_shows_no_code(exec/cuda_eigenvectors.cuh)
endif()
