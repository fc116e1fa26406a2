// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "minicache.hpp"

#include <torch/csrc/stable/library.h>

#include "cpu_device.hpp"

namespace tessera_torch {

handles<minicache_cache>& minicaches() {
  static handles<minicache_cache> made("minicache");
  return made;
}

namespace {

void append(std::int64_t cache, std::vector<Tensor> keys, std::vector<Tensor> values) {
  minicaches().get(cache)->append(keys, values);
}
void begin_token(std::int64_t cache) {
  minicaches().get(cache)->begin_token();
}
Tensor write_and_attend(std::int64_t cache, std::int64_t layer, Tensor keys, Tensor values, Tensor queries) {
  return minicaches().get(cache)->write_and_attend(layer, keys, values, queries);
}
void end_token(std::int64_t cache) {
  minicaches().get(cache)->end_token();
}
std::tuple<std::int64_t, std::int64_t> bytes(std::int64_t cache) {
  return minicaches().get(cache)->bytes();
}
void free(std::int64_t cache) {
  minicaches().free(cache);
}

}  // namespace
}  // namespace tessera_torch

STABLE_TORCH_LIBRARY_FRAGMENT(tessera_torch, m) {
  m.def("minicache_make(Tensor on, int sequences, int tokens, int heads, int channels, int[] parts) -> int");
  m.def("minicache_append(int cache, Tensor[] keys, Tensor[] values) -> ()");
  m.def("minicache_begin_token(int cache) -> ()");
  m.def("minicache_write_and_attend(int cache, int layer, Tensor keys, Tensor values, Tensor queries) -> Tensor");
  m.def("minicache_end_token(int cache) -> ()");
  m.def("minicache_bytes(int cache) -> (int, int)");
  m.def("minicache_free(int cache) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CPU, m) {
  m.impl("minicache_make", TORCH_BOX(&tessera_torch::make_minicache<tessera_torch::cpu_device>));
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CompositeExplicitAutograd, m) {
  m.impl("minicache_append", TORCH_BOX(&tessera_torch::append));
  m.impl("minicache_begin_token", TORCH_BOX(&tessera_torch::begin_token));
  m.impl("minicache_write_and_attend", TORCH_BOX(&tessera_torch::write_and_attend));
  m.impl("minicache_end_token", TORCH_BOX(&tessera_torch::end_token));
  m.impl("minicache_bytes", TORCH_BOX(&tessera_torch::bytes));
  m.impl("minicache_free", TORCH_BOX(&tessera_torch::free));
}
