# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
tessera_check_pieces(ON_HOST primitives "${pieces}\n#include \"checks/examples/concepts.hpp\"\n\
#include <tessera/algorithm/gemm/linear.hpp>\n#include <tessera/algorithm/paged_cache/quantized_codec.hpp>\n\
#include <tessera/exec/policy_of.hpp>\n#include <tessera/map/chained.hpp>\n#include <tessera/map/soft_capped.hpp>\n\
#include <tessera/merge/slerp.hpp>\n#include <tessera/project/low_rank.hpp>\n\
#include <tessera/quantize/asymmetric.hpp>\n#include <tessera/reduce/maximum.hpp>\n\
#include <tessera/select/landmark.hpp>\n#include <tessera/select/top_k.hpp>\n\
#include <tessera/tile/multiply_sums.hpp>\n#include <tessera/tile/source/dense.hpp>"
  concepts/attention_quantizer.hpp "float largest, float value"
  concepts/chunk_selector.hpp "std::enable_if_t<ChunkSelector<my_selector>, my_selector> const&"
  concepts/entropy_coder.hpp "C::model_type const& model, std::vector<C::symbol_type>& message, int n, \
    std::vector<std::uint16_t>& words"
  concepts/executor.hpp "compiled<&twice::forward<Executor>>"
  concepts/group.hpp "Group const& group, lane_values& scratch, float const* from"
  concepts/group.hpp:4 ""
  concepts/logit_map.hpp "${given_matrix} h, ${given_matrix} c, tessera::array_view<std::int64_t const> l, \
    tessera::array_view<float const> log_prior"
  concepts/merger.hpp "std::vector<float> const& a, std::vector<float> const& b, std::vector<float>& merged, int n"
  concepts/page_codec.hpp "std::byte const* bytes"
  concepts/program.hpp "compiled<&doubled::operator()<Group>>"
  concepts/program.hpp:2 ""
  concepts/program.hpp:3 ""
  concepts/projector.hpp "float const* rows, std::int64_t count, int width, float const* row, float* coefficients, \
    float* again"
  concepts/quantizer.hpp "std::vector<float> const& group"
  concepts/reducer.hpp ""
  concepts/refused_call.hpp "compiled<static_cast<void (*)(Executor const&, inputs<bfloat16> const&, options const&, \
    workspace const&)>(&algorithm::forward)>"
  concepts/scalar.hpp "numbers<bfloat16> const&, compiled<&numbers<bfloat16>::first>"
  concepts/selector.hpp "std::vector<float> const& chunk, float query, float& score, float const* scores, \
    std::int64_t candidates, std::int64_t* taken"
  concepts/stream_coder.hpp "std::uint64_t const* counts, C::model_type& model, std::uint8_t* bytes, \
    C::encode_table& table, C::symbol_type symbol, C::encode_state state, std::uint32_t number"
  concepts/sum_map.hpp "${given_executor}, ${given_matrix} inputs, ${given_matrix} weights, \
    tessera::array_view<float const> bias, ${given_result} outputs"
  concepts/tile_mma.hpp "Group const& group, int depth, M::a_tile& a_tile, bfloat16 const* a, std::int64_t a_stride, \
    M::b_tile& b_tile, bfloat16 const* b, std::int64_t b_stride, M::sum_tile& sums, float* c, std::int64_t c_stride"
  concepts/tile_mma.hpp:2 "Group const& group, M::sum_tile& scores, \
    tessera::staged_tile<bfloat16, 128, 64> const& values, Next::sum_tile& totals"
  concepts/tile_source.hpp "dense<bfloat16> const& source, Group const& group, staged_tile<bfloat16, 64, 32>& tile, \
    std::int64_t first_row, std::int64_t first_column"
  concepts/tuning.hpp "std::enable_if_t<Tuning<my_tuning>, my_tuning>")
