// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "shadow_kv.hpp"

#include <torch/csrc/stable/library.h>

#include "cpu_device.hpp"

namespace tessera_torch {

handles<shadow_kv_cache>& shadow_kvs() {
  static handles<shadow_kv_cache> made("shadow_kv");
  return made;
}

namespace {

void prefill(std::int64_t cache, std::int64_t sequence, Tensor keys, Tensor values) {
  shadow_kvs().get(cache)->prefill(sequence, keys, values);
}
Tensor decode(std::int64_t cache, Tensor queries, Tensor keys, Tensor values) {
  return shadow_kvs().get(cache)->decode(queries, keys, values);
}
std::tuple<std::int64_t, std::int64_t> bytes(std::int64_t cache) {
  return shadow_kvs().get(cache)->bytes();
}
double hit_rate(std::int64_t cache) {
  return shadow_kvs().get(cache)->hit_rate();
}
void free(std::int64_t cache) {
  shadow_kvs().free(cache);
}

}  // namespace
}  // namespace tessera_torch

STABLE_TORCH_LIBRARY_FRAGMENT(tessera_torch, m) {
  m.def(
      "shadow_kv_make(Tensor on, int query_heads, int key_heads, int channels, int[] tokens, int chunks, "
      "float rotary_base) -> int");
  m.def("shadow_kv_prefill(int cache, int sequence, Tensor keys, Tensor values) -> ()");
  m.def("shadow_kv_decode(int cache, Tensor queries, Tensor keys, Tensor values) -> Tensor");
  m.def("shadow_kv_bytes(int cache) -> (int, int)");
  m.def("shadow_kv_hit_rate(int cache) -> float");
  m.def("shadow_kv_free(int cache) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CPU, m) {
  m.impl("shadow_kv_make", TORCH_BOX(&tessera_torch::make_shadow_kv<tessera_torch::cpu_device>));
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CompositeExplicitAutograd, m) {
  m.impl("shadow_kv_prefill", TORCH_BOX(&tessera_torch::prefill));
  m.impl("shadow_kv_decode", TORCH_BOX(&tessera_torch::decode));
  m.impl("shadow_kv_bytes", TORCH_BOX(&tessera_torch::bytes));
  m.impl("shadow_kv_hit_rate", TORCH_BOX(&tessera_torch::hit_rate));
  m.impl("shadow_kv_free", TORCH_BOX(&tessera_torch::free));
}
