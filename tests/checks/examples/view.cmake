# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
tessera_check_pieces(ON_HOST view "#include \"checks/examples/view.hpp\""
  view/attention_mask.hpp "std::int64_t queries, std::int64_t keys, std::int64_t left, std::int64_t query"
  view/array_view.hpp ""
  view/check_parts.hpp "tessera::dense<tessera::bfloat16> const& weights, tessera::add_bias<float> const& map, \
    tessera::matrix_view<float> outputs"
  view/dlpack.hpp "DLManagedTensor const* managed"
  view/head_view.hpp "tessera::bfloat16 const* data, std::int64_t batch, std::int64_t heads, std::int64_t tokens, \
    std::int64_t channels, int sequence, int head"
  view/matrix_view.hpp "std::vector<float>& numbers, std::int64_t rows, std::int64_t columns, int i, int j"
  view/view.hpp ""
  view/visit_views.hpp
    "tessera::dense_bias<tessera::bfloat16> const& bias, std::map<std::string, std::int64_t>& sizes")
