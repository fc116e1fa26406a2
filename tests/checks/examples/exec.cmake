# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
tessera_check_pieces(ON_HOST exec "${pieces}\n#include \"checks/examples/exec.hpp\""
  exec/buffer.hpp "${given_executor}, std::int64_t tokens"
  exec/check_reach.hpp "${given_executor}, std::vector<float> const& weights"
  exec/check_reach.hpp:2 "compiled<&my_source::each_view<use_of_views>>"
  exec/cpu.hpp "tessera::array_view<float> numbers"
  exec/explain.hpp "${given_executor}, tessera::attention_inputs<T> const& in, \
    tessera::attention_options const& options, tessera::attention_outputs<T> const& out, \
    tessera::workspace const& space"
  exec/memory.hpp ""
  exec/memory.hpp:2 ""
  exec/program_name.hpp ""
  exec/refusal.hpp "my_call const& call"
  exec/run.hpp "${given_executor}, tessera::offload_extents const& n, \
    tessera::offloaded_memory<T, tessera::chunk_landmarks<S>::element_type> const& memory, \
    tessera::offload_step<T> const& step, S const& selector, float scale, tessera::attention_shape const& shape, \
    tessera::attention_options const& options, tessera::quantized_heads<Method> const& heads, \
    tessera::attention_outputs<T> const& out"
  exec/side_queue.hpp "${given_executor}, struct program const& program, std::int64_t count"
  exec/status_calls.hpp "${given_executor}, std::int64_t groups, struct program& program"
  exec/worker_pool.hpp "tessera::detail::parallel_job& job"
  exec/workspace.hpp "${given_executor}, std::int64_t blocks")
