# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
tessera_check_pieces(ON_HOST tiles "#include \"checks/examples/tile.hpp\"\n#include <tessera/reduce/maximum.hpp>\n\
#include <tessera/reduce/online_softmax.hpp>\n#include <tessera/reduce/row_parts.hpp>\n\
#include <tessera/reduce/sum.hpp>\n\
#include <tessera/tile/codes/join_bytes.hpp>\n#include <tessera/tile/multiply_sums.hpp>\n\
#include <tessera/tile/multiply_staged.hpp>"
  tile/codes/code_widening.hpp "Group const& group, code_scratch& scratch, float& total"
  tile/codes/join_bytes.hpp "Group const& group, std::uint32_t even, std::uint32_t odd, std::uint32_t signs, \
    std::uint32_t values"
  tile/codes/value_slot.hpp "tessera::staged_tile<tessera::float8_e4m3, 64, 128>& codes, int channel, int token, \
    tessera::float8_e4m3 code"
  tile/copies_in_flight.hpp "Group const& group, Tile& tile, tessera::tile_chunk<tessera::bfloat16> const* from, \
    int column, bool is_inside"
  tile/gemm_operand.hpp "std::int8_t a, std::int8_t b"
  tile/gemm_schedule.hpp "tessera::gemm_work_item const* tiles, std::int32_t count, std::int32_t const* k_tiles"
  tile/gemm_tile.hpp "Group const& group, int depth, product::a_tile& a, tessera::bfloat16 const* a_from, \
    std::int64_t a_stride, product::b_tile& b, tessera::bfloat16 const* w_from, std::int64_t w_stride, \
    product::sum_tile& totals, void (*visit)(int, int, float&), void (*visit_pair)(int, int, float&, float&)"
  tile/multiply_staged.hpp "Group const& group, operand_scratch& scratch, product::sum_tile& sums"
  tile/multiply_staged.hpp:2 "Group const& group, value_scratch& scratch, \
    tessera::staged_tile<tessera::bfloat16, 64, 128> const& weights, results::sum_tile& totals"
  tile/multiply_staged.hpp:3 "Group const& group, tessera::dense<tessera::bfloat16> const& a, \
    tessera::dense<tessera::bfloat16> const& b, std::int64_t first_row, std::int64_t first_column, \
    pipeline_scratch& scratch, product::sum_tile& sums"
  tile/multiply_sums.hpp
    "Group const& group, scores::sum_tile const& weights, value_scratch& scratch, results::sum_tile& totals"
  tile/multiply_sums.hpp:2 "Group const& group, scores::sum_tile const& weights, \
    tessera::staged_tile<tessera::bfloat16, 64, 128> (&values)[2], results::sum_tile (&totals)[2]"
  tile/per_lane.hpp "Group const& group, tessera::matrix_view<float const> values, int which"
  tile/pipelined.hpp "Group const& group, pipeline_scratch& scratch, tessera::dense<tessera::bfloat16> const& a, \
    tessera::dense<tessera::bfloat16> const& b, std::int64_t first_row, std::int64_t first_column, int steps, \
    int depth, product::sum_tile& sums"
  tile/pipelined.hpp:2 "Group const& group, int tiles, void (*begin_keys)(), void (*begin_values)(), \
    void (*make_scores)(), void (*add_values)()"
  tile/pipelined.hpp:3 "Group const& group, tessera::dense_chunks<tessera::bfloat16> const& source, \
    std::int64_t first_row, int first, int end, int by, int depth, tile_on_the_way& tile, \
    void (*multiply)(tile_on_the_way const&, int)"
  tile/row_chunks.hpp "${given_matrix} matrix, tessera::matrix_view<float> outputs, std::int64_t row, \
    std::int64_t column, tessera::tile_chunk<float> const& chunk"
  tile/row_schedule.hpp ""
  tile/row_tile.hpp
    "Group const& group, scores::sum_tile& sums, value_scratch& scratch, results::sum_tile& totals"
  tile/rows/lane_rows.hpp "Group const& group, float const (&from)[4][128]"
  tile/rows/settle_parts.hpp
    "Group const& group, void (*read)(int, tessera::row_part<tessera::softmax_state<float>, 0>&)"
  tile/rows/weigh_rows.hpp ""
  tile/rows/weigh_rows.hpp:2 ""
  tile/serial/add_products.hpp ""
  tile/serial/add_value_codes.hpp ""
  tile/serial/group.hpp ""
  tile/serial/load_transposed.hpp "tessera::bfloat16 const* weights, std::int64_t stride"
  tile/serial/multiply_codes.hpp ""
  tile/serial/vectors.hpp "float* values, void (*double_all)(float*)"
  tile/store_values.hpp "Group const& group, bool is_inside, Tile& tile, int row, int column"
  tile/tile_order.hpp ""
  tile/top_k.hpp "Group const& group, tessera::array_view<float const> scores, top_k_digits& scratch, \
    void (*write)(std::int64_t, std::int64_t)"
  tile/triangle.hpp "")
