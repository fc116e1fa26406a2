# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set(given_stream "tessera::array_view<std::byte const> stream")
tessera_check_pieces(ON_HOST algorithms_and_programs "${pieces}\n#include \"checks/examples/algorithm.hpp\""
  algorithm/weights/coded_matrix.hpp "${given_executor}, tessera::weight_stream_spec const& spec, ${given_stream}, \
    std::int64_t rows, std::int64_t columns, ${given_matrix} inputs, ${given_result} outputs"
  algorithm/weights/compressed_all_gather.hpp "${given_executor}, tessera::array_view<tessera::bfloat16 const> own, \
    tessera::array_view<tessera::bfloat16> all"
  algorithm/weights/compressed_broadcast.hpp "${given_executor}, tessera::array_view<tessera::bfloat16> list"
  algorithm/weights/compressed_collective_types.hpp ""
  algorithm/weights/compressed_linear.hpp "${given_memory}, tessera::weight_stream_spec const& spec, \
    ${given_stream}, ${given_matrix} inputs, ${given_result} outputs"
  algorithm/weights/compressed_reduce_scatter.hpp "${given_executor}, \
    tessera::array_view<tessera::bfloat16 const> gradients, tessera::array_view<tessera::bfloat16> sums"
  algorithm/weights/compressed_weights.hpp "std::vector<tessera::bfloat16>& weights"
  algorithm/weights/compressed_weights.hpp:2 "${given_memory}, std::int64_t count, \
    tessera::array_view<tessera::bfloat16 const> weights, tessera::array_view<std::byte> stream, \
    tessera::array_view<std::int64_t> stream_bytes"
  algorithm/weights/detail/check_streams.hpp "${given_stream}, tessera::expected_weight_stream const& spec"
  algorithm/weights/detail/message_layout.hpp "${given_executor}, tessera::loopback& ranks, int rank, \
    tessera::array_view<tessera::bfloat16> list, tessera::compressed_collective_options const& options, \
    tessera::array_view<std::byte> memory, std::int64_t chunk"
  algorithm/weights/detail/parameter_memory.hpp "${given_executor}, \
    tessera::parameter_store_options const& options, tessera::memory_handle const& resource, \
    tessera::stream_handle stream, tessera::detail::parameter_sizes<Codec> const& sizes, int slot, std::int64_t count"
  algorithm/weights/detail/parameter_sizes.hpp
    "${given_executor}, std::int64_t count, tessera::parameter_store_options const& options"
  algorithm/weights/inspect_weight_stream.hpp "std::vector<std::byte> const& bytes"
  algorithm/weights/list_of_weights.hpp "${given_executor}, std::vector<tessera::bfloat16> const& vector"
  algorithm/weights/parameter_lease.hpp "${given_executor}, \
    tessera::parameter_store<tessera::neuzip, Executor>& store, tessera::parameter_id id, std::int64_t tiles"
  algorithm/weights/parameter_store.hpp "${given_executor}, std::vector<tessera::bfloat16> const& weights, \
    tessera::array_view<float const> gradient, tessera::parameter_id second, std::int64_t tiles"
  algorithm/weights/parameter_store_types.hpp ""
  algorithm/weights/weight_codec_specs.hpp ""
  algorithm/weights/weight_coder.hpp "")
tessera_shows_no_code(algorithm/weights/parameter_store.hpp:2)
