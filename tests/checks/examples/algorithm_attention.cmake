# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
tessera_check_pieces(ON_HOST algorithms_and_programs "${pieces}\n#include \"checks/examples/algorithm.hpp\""
  algorithm/attention/attention_score.hpp "${given_memory}, tessera::attention_shape const& shape, \
    ${given_heads} in_four_bits, ${given_heads} in_eight_bits, tessera::array_view<float> score, \
    std::vector<float> const& scores"
  algorithm/attention/attention_types.hpp ""
  algorithm/attention/decode_attention.hpp "${given_memory}, tessera::attention_shape const& shape, \
    ${given_heads} queries, ${given_heads} keys, ${given_heads} values, \
    tessera::matrix_view<std::int32_t const> blocks, tessera::sequence_lengths lengths, \
    tessera::head_view<tessera::bfloat16> result"
  algorithm/attention/dense_attention.hpp "${given_memory}, std::int64_t batch, std::int64_t query_heads, \
    std::int64_t key_heads, std::int64_t queries, std::int64_t keys, std::int64_t channels, \
    ${given_heads} q, ${given_heads} k, ${given_heads} v, tessera::head_view<tessera::bfloat16> result"
  algorithm/attention/detail/attention_checks.hpp "tessera::attention_inputs<tessera::bfloat16> const& in"
  algorithm/attention/float8_attention.hpp "${given_executor}, tessera::attention_shape const& shape, \
    tessera::attention_inputs<tessera::bfloat16> const& inputs, \
    tessera::attention_outputs<tessera::bfloat16> const& outputs"
  algorithm/attention/packed_codes.hpp "${given_executor}, tessera::sage_attention2::heads const& heads, \
    tessera::head_view<tessera::int4x2> packed"
  algorithm/attention/quantized_regions.hpp "tessera::attention_shape const& shape, tessera::buffer<std::byte>& memory"
  algorithm/attention/widened_codes.hpp "")
