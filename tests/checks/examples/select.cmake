# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
tessera_check_pieces(ON_HOST primitives "${pieces}\n#include <tessera/algorithm/offloaded_cache/exact_keys.hpp>\n\
#include <tessera/select/landmark.hpp>\n#include <tessera/select/top_k.hpp>"
  select/chunk_budget.hpp ""
  select/chunk_landmarks.hpp "tessera::landmark_selector<8> const& selector, tessera::view<float const, 2> keys, \
    tessera::view<float const, 1> query, std::int64_t channels, tessera::scored_chunk const& at"
  select/coded_landmark.hpp ""
  select/given_chunks.hpp "${given_executor}, tessera::side_queue<Executor> const& side, \
    open_cache<bfloat16, exact_keys, given_chunks<16>, exact_values> const& cache, \
    ${given_tokens} queries, ${given_tokens} keys, ${given_tokens} values, \
    tessera::view<std::int32_t const, 3> numbers, tessera::offload_outputs<tessera::bfloat16> const& outputs, \
    tessera::workspace const& space"
  select/keep_outliers.hpp "float product, float key_square, float mean_square"
  select/key_codes.hpp ""
  select/landmark.hpp "std::vector<float> const& chunk, float query, float score, float const* scores, \
    std::int64_t candidates, std::int64_t* taken"
  select/oracle.hpp ""
  select/query_group.hpp
    "tessera::group_max group, int heads, std::vector<float> const& scores, std::vector<float> const& log_sum_exps"
  select/quest.hpp "std::vector<float> const& chunk, float query, float bound"
  select/random.hpp ""
  select/recent.hpp ""
  select/top_k.hpp "")
