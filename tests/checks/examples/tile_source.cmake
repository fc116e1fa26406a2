# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set(given_layer "${given_executor}, ${given_matrix} inputs, ${given_result} outputs")
set(given_load "Group const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column")
set(given_corner "std::int64_t row, std::int64_t column")
tessera_check_pieces(ON_HOST tiles "#include \"checks/examples/tile.hpp\"\n#include <tessera/neuzip.hpp>\n\
#include <tessera/algorithm/gemm/linear.hpp>\n#include <tessera/algorithm/weights/coded_matrix.hpp>\n\
#include <tessera/program/gemm/gemm_tiles.hpp>\n#include <tessera/quantize/scaled_float.hpp>"
  tile/source/async_source.hpp "tessera::dense<tessera::bfloat16> const& source, ${given_load}"
  tile/source/async_source.hpp:2 "Group const& group, tessera::dense<tessera::bfloat16> const& a, \
    tessera::gathered<tessera::bfloat16> const& b, tessera::staged_tile<tessera::bfloat16, 64, 32>& a_tile, \
    tessera::staged_tile<tessera::bfloat16, 64, 32>& b_tile, std::int64_t first_row, std::int64_t first_column"
  tile/source/byte_as_float.hpp "Group const& group, std::uint32_t word"
  tile/source/chunked_source.hpp "S const& source, Group const& group, \
    tessera::lane_operand<tessera::bfloat16, 16, 128>& tile, \
    S::fetched<Group, tessera::lane_operand<tessera::bfloat16, 16, 128>>& next, \
    std::int64_t first_row, std::int64_t first_column"
  tile/source/coded_weights.hpp "${given_layer}, tessera::expected_weight_stream const& spec, \
    tessera::array_view<std::byte const> stream, std::int64_t rows, std::int64_t columns, \
    tessera::workspace const& space"
  tile/source/converted.hpp "${given_layer}, tessera::matrix_view<tessera::float8_e4m3 const> matrix"
  tile/source/decoded.hpp
    "${given_load}, reader const& blocks, std::int64_t rows, std::int64_t columns, stream_scratch& scratch"
  tile/source/decoded.hpp:2 "${given_matrix} inputs, reader const& blocks, std::int64_t rows, std::int64_t columns, \
    Epilogue const& epilogue"
  tile/source/dense.hpp
    "${given_load}, ${given_matrix} matrix, ${given_matrix} hidden, tessera::array_view<std::int64_t const> order"
  tile/source/dequantized.hpp "tessera::matrix_view<std::int8_t const> codes, \
    tessera::matrix_view<tessera::symmetric_params const> scales, ${given_matrix} inputs, Epilogue const& epilogue"
  tile/source/dequantized.hpp:2 "tessera::matrix_view<tessera::int4x2 const> pairs, \
    tessera::matrix_view<tessera::symmetric_params const> scales"
  tile/source/fetched_source.hpp "S const& source, ${given_load}"
  tile/source/filtered.hpp "Group const& group, Tile& tile, ${given_matrix} matrix, \
    tessera::matrix_view<std::uint8_t const> kept, ${given_corner}"
  tile/source/gathered_columns.hpp "${given_matrix} hidden, tessera::array_view<std::int64_t const> order"
  tile/source/int4_codes.hpp "${given_load}, tessera::matrix_view<tessera::int4x2 const> pairs"
  tile/source/int4_codes.hpp:2 "${given_load}, tessera::int4_codes const& weights"
  tile/source/joined_heads.hpp "${given_tokens} heads"
  tile/source/open_source.hpp "Group const& group, S const& given, scratch_type& scratch"
  tile/source/scaled_codes.hpp "${given_layer}, tessera::matrix_view<tessera::int4x2 const> codes, \
    tessera::matrix_view<tessera::symmetric_params const> scales"
  tile/source/scaled_operand.hpp "tessera::matrix_view<tessera::float8_e4m3 const> codes, \
    tessera::matrix_view<tessera::scaled_float_params const> scales, \
    tessera::matrix_view<tessera::float8_e4m3 const> w_codes, \
    tessera::matrix_view<tessera::scaled_float_params const> w_scales"
  tile/source/scaled_source.hpp "S const& source, ${given_corner}, float& sum, float sum_of_group"
  tile/source/widen_exactly.hpp "Group const& group, std::uint32_t word")
