# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set(given_layer "${given_executor}, ${given_matrix} inputs, ${given_matrix} weights, ${given_result} outputs")
set(given_attention "${given_executor}, tessera::attention_inputs<tessera::bfloat16> const& inputs, \
  tessera::attention_options const& options, tessera::attention_outputs<tessera::bfloat16> const& outputs, \
  tessera::workspace const& space")
tessera_check_pieces(ON_HOST primitives "${pieces}\n#include \"checks/examples/concepts.hpp\"\n\
#include <tessera/algorithm/loss/linear_distillation.hpp>\n\
#include <tessera/algorithm/gemm/linear.hpp>\n#include <tessera/map/add_bias.hpp>"
  map/add_bias.hpp "${given_layer}, tessera::array_view<float const> bias"
  map/add_matrix.hpp "${given_layer}, ${given_matrix} residual"
  map/as_stored.hpp "attention_functions<no_bias, rotated, rotated> const&, \
    compiled<&rotated::operator()<stored_heads<bfloat16>>>"
  map/chained.hpp "${given_layer}, tessera::array_view<float const> bias"
  map/dense_bias.hpp "${given_attention}, tessera::bfloat16 const* data, std::int64_t batch, std::int64_t heads, \
    std::int64_t queries, std::int64_t keys"
  map/divergence.hpp ""
  map/from_column.hpp "tessera::array_view<float const> bias"
  map/linear_bias.hpp "${given_attention}, tessera::array_view<float const> slopes"
  map/listed_tiles.hpp "${given_attention}, std::int32_t const* counts, std::int32_t const* tiles, std::int64_t batch, \
    std::int64_t heads, std::int64_t blocks, std::int64_t most"
  map/no_bias.hpp "attention_functions<later_is_better> const&")
tessera_check_pieces(ON_HOST primitives "${pieces}"
  project/low_rank.hpp "float const* rows, std::int64_t count, int width, float const* row, float* coefficients, \
    float* again"
  project/rotary.hpp "std::int64_t position, std::int64_t channel, float (*keys)(std::int64_t)"
  project/rotary_tables.hpp "${given_executor}, tessera::buffer<tessera::rotation>& within, \
    tessera::buffer<tessera::rotation>& blocks"
  project/symmetric_eigen.hpp "")
