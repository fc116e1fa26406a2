// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: tessera: cross_layer_cache.attend takes an executor, the layer, queries, cache_sequences, attention_options
#include <tessera/exec/cpu.hpp>
#include <tessera/minicache.hpp>

void attend(tessera::minicache const& cache, tessera::head_view<tessera::bfloat16> q,
            tessera::cache_sequences& sequences, tessera::head_view<tessera::bfloat16> result,
            tessera::head_view<float> wide, tessera::workspace const& space) {
  tessera::attention_outputs<float> out{wide};
  cache.attend(tessera::cpu{}, 0, q, sequences, {.is_causal = true}, {result}, space);
#if defined(TESSERA_FAIL)
  cache.attend(tessera::cpu{}, 0, q, sequences, out, {.is_causal = true}, space);
#else
  cache.attend(tessera::cpu{}, 0, q, sequences, {.is_causal = true}, out, space);
  cache.attend(tessera::cpu{}, 0, q, sequences, {.is_causal = true}, out, space, {});
#endif
}
