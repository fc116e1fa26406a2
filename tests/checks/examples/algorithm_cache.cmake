# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
tessera_check_pieces(ON_HOST algorithms_and_programs "${pieces}\n#include \"checks/examples/algorithm.hpp\"\n\
#include <tessera/algorithm/paged_cache/cross_layer_cache.hpp>\n\
#include <tessera/quantize/asymmetric.hpp>\n#include <tessera/select/quest.hpp>"
  algorithm/offloaded_cache/exact_keys.hpp ""
  algorithm/offloaded_cache/low_rank_keys.hpp "${given_executor}, tessera::offload_shape const& shape, \
    tessera::offload_options const& options"
  algorithm/offloaded_cache/offloaded_cache.hpp "${given_memory}, tessera::offload_shape const& shape, \
    tessera::offload_options const& options, tessera::array_view<std::byte> device_block, \
    tessera::array_view<std::byte> pinned_block, tessera::rotary_embedding const& rotary, std::int64_t sequence, \
    ${given_tokens} queries, ${given_tokens} keys, ${given_tokens} values, tessera::view<tessera::bfloat16, 3> result"
  algorithm/offloaded_cache/offloaded_cache_plan.hpp
    "${given_executor}, tessera::offload_shape const& shape, tessera::offload_options const& options"
  algorithm/offloaded_cache/offloaded_cache_types.hpp ""
  algorithm/paged_cache/block_pool.hpp ""
  algorithm/paged_cache/cache_bytes.hpp
    "${given_executor}, tessera::minicache const& cache, tessera::cache_sequences const& sequences"
  algorithm/paged_cache/cache_layout.hpp
    "tessera::cache_extents const& extents, std::vector<tessera::cache_layers> const& parts, \
    tessera::buffer<std::byte>& block"
  algorithm/paged_cache/cross_layer_cache_types.hpp ""
  algorithm/paged_cache/detail/cache_checks.hpp
    "tessera::cache_extents const& extents, tessera::cache_sequences const& sequences"
  algorithm/paged_cache/direction_codec.hpp ""
  algorithm/paged_cache/direction_codecs.hpp ""
  algorithm/paged_cache/quantized_codec.hpp ""
  algorithm/paged_cache/saved_cache.hpp
    "${given_executor}, tessera::minicache& cache, tessera::cache_sequences const& sequences, int slot, \
    std::vector<std::int32_t> const& blocks")
tessera_check_pieces(ON_HOST algorithm_key_store "#include <tessera/shadow_kv.hpp>"
  algorithm/offloaded_cache/key_store.hpp
    "tessera::offloaded_cache<my_keys, tessera::landmark_selector<8>, tessera::keep_outliers<48>> const&")
tessera_check_example(algorithm/paged_cache/kivi_cache.hpp "std::int64_t slots, std::int64_t tokens, \
  std::int64_t blocks, std::int64_t key_heads, std::int64_t channels, int layers" "#include <vector>\n")
tessera_shows_no_code(algorithm/paged_cache/paged_cache.cuh)
