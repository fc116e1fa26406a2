// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: tessera: offloaded_cache.decode takes an executor, its side_queue, the cache of open\(\), offload_tokens<T>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/shadow_kv.hpp>

using method = tessera::shadow_kv;

void decode(tessera::side_queue<tessera::cpu>& side, method::cache_type<tessera::bfloat16>& cache,
            tessera::view<tessera::bfloat16 const, 3> q, tessera::view<tessera::bfloat16, 3> result,
            tessera::offload_tokens<tessera::bfloat16>& in, tessera::offload_outputs<float>& out,
            tessera::workspace const& space) {
  method::decode(tessera::cpu{}, side, cache, {q, q, q}, {result}, space);
#if defined(TESSERA_FAIL)
  method::decode(tessera::cpu{}, side, cache, out, in, space);
#else
  method::decode(tessera::cpu{}, side, cache, in, out, space);
#endif
}
