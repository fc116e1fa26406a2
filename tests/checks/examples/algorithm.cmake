# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
tessera_check_pieces(ON_HOST algorithms_and_programs
  "${pieces}\n#include \"checks/examples/algorithm.hpp\"\n#include <tessera/quantize/scaled_float.hpp>\n\
#include <tessera/tile/source/scaled_operand.hpp>"
  algorithm/gemm/linear.hpp "${given_executor}, ${given_matrix} inputs, ${given_matrix} weights, \
    ${given_result} outputs, tessera::array_view<float const> bias"
  algorithm/gemm/linear.hpp:2 "${given_executor}, ${given_matrix} inputs, ${given_result} outputs, \
    tessera::matrix_view<std::int8_t const> codes, tessera::matrix_view<tessera::symmetric_params const> scales"
  algorithm/gemm/linear.hpp:3 "${given_executor}, ${given_matrix} inputs, ${given_result} outputs, \
    tessera::dequantized<quantizer, tessera::bfloat16> const& weights"
  algorithm/gemm/linear.hpp:4 "${given_executor}, ${given_matrix} inputs, ${given_matrix} weights, \
    ${given_matrix} gradient, ${given_result} of_inputs, ${given_result} of_weights"
  algorithm/gemm/materialize.hpp "${given_executor}, tessera::matrix_view<std::int8_t const> codes, \
    tessera::matrix_view<tessera::symmetric_params const> scales, ${given_result} weights"
  algorithm/gemm/quantized_matrix.hpp "${given_executor}, std::int64_t rows, std::int64_t columns, \
    ${given_matrix} weights, ${given_matrix} inputs, ${given_result} outputs"
  algorithm/gemm/row_reduction.hpp "${given_executor}, ${given_matrix} logits, \
    tessera::buffer<tessera::indexed_value<float>>& best"
  algorithm/gemm/scaled_linear.hpp "${given_executor}, tessera::matrix_view<tessera::float8_e4m3 const> codes, \
    tessera::matrix_view<tessera::scaled_float_params const> scales, \
    tessera::matrix_view<tessera::float8_e4m3 const> w_codes, \
    tessera::matrix_view<tessera::scaled_float_params const> w_scales, ${given_result} outputs"
  algorithm/loss/linear_distillation_types.hpp ""
  algorithm/loss/linear_loss_types.hpp ""
  tuning/loss/part_costs.hpp ""
  algorithm/subspace/factorize_keys.hpp "${given_executor}, std::int64_t width, tessera::matrix_view<float> gram, \
    tessera::array_view<float> room, ${given_tokens} keys, ${given_result} directions, ${given_result} coefficients")
if(TARGET CUDA::cusolver OR NOT TESSERA_HAVE_CUDA)
  tessera_check_pieces(WITH_NVCC nvcc
    "#include <tessera/algorithm/subspace/factorize_keys.hpp>\n#include <tessera/exec/buffer.hpp>"
    algorithm/subspace/subspace_by_solver.cuh "tessera::cuda const& exec, tessera::buffer<std::byte>& memory, \
      tessera::key_factorization const& factorization, ${given_tokens} keys, tessera::matrix_view<float> gram, \
      tessera::array_view<float> room, ${given_result} directions")
else()  # its header needs cuSOLVER
  tessera_shows_no_code(algorithm/subspace/subspace_by_solver.cuh)
endif()
