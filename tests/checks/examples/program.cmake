# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
tessera_check_pieces(ON_HOST algorithms_and_programs "${pieces}\n#include \"checks/examples/program.hpp\"\n\
#include <tessera/program/gemm/gemm_tiles.hpp>\n#include <tessera/quantize/asymmetric.hpp>\n\
#include <tessera/quantize/symmetric.hpp>\n#include <tessera/reduce/sum.hpp>\n\
#include <tessera/tile/source/dense.hpp>"
  program/attention/detail/forward_band.hpp ""
  program/attention/detail/forward_splits.hpp "tessera::attention_split_policy const& policy, std::int32_t turn, \
    tessera::tile_range const& all_its_tiles"
  program/attention/detail/key_cursor.hpp "tessera::detail::query_block<64> const& block, \
    tessera::attention_block_list const& list, std::int64_t splits, std::int64_t split"
  program/attention/detail/key_terms.hpp "Group const& group, tessera::view<float const, 1> scales, \
    tessera::array_view<float> corrections, std::int64_t first_key, \
    tessera::attention_tiles<Method, T, tessera::no_bias, 64>::scratch_type& scratch"
  program/attention/detail/row_codes.hpp "float const* row, float reciprocal, std::int8_t* bytes, float const* rows, \
    float const* reciprocals, tessera::float8_e4m3* codes"
  program/attention/detail/row_sums.hpp "float const* row, int part"
  program/attention/detail/score_weights.hpp "Group const& group, tessera::detail::query_block<64> const& block, \
    std::int64_t first_key, tessera::detail::no_score_scales const& scales, bool is_first_tile, \
    Product::sum_tile (&scores)[2]"
  program/attention/detail/weigh_by_vectors.hpp "template <class Weights, class Sums> \
    (Weights const& by_vectors, Sums (&scores)[2], int row, int first_row, bool is_first, float* sums, \
    tessera::detail::score_range range)"
  program/attention/head_source.hpp "${given_heads} view, tessera::sequence_lengths lengths, std::int64_t sequence, \
    std::int64_t head, std::int64_t token, std::int64_t channel"
  program/gemm/sum_epilogue.hpp "tessera::gemm_tiles<T, tessera::dense<T>, tessera::dense<T>, add_to_result> const&"
  program/offloaded_cache/value_record.hpp
    "${given_matrix} values, std::byte* to, std::byte const* from, std::int64_t token, std::int64_t channel"
  program/paged_cache/detail/narrow_codes.hpp "std::uint32_t const (&four)[4]"
  program/paged_cache/page_codes.hpp "std::uint32_t const (&fields)[8]")
tessera_check_pieces(ON_DEVICE device ""
  program/attention/lane_weights.cuh "float reference, float a, float b, float c, float d"
  program/loss/detail/add_to_columns.cuh "float (&sums)[32], float const* bias, std::int32_t first, int lane")
tessera_check_pieces(ON_DEVICE device "#include <tessera/reduce/maximum.hpp>"
  program/loss/logit_rows.cuh "float (&sums)[96], std::int32_t first, std::int32_t entries, float scale, \
    tessera::scaled_exponentials<float> (&kept)[16][1]")
tessera_shows_no_code(program/paged_cache/cache_memory.hpp)
