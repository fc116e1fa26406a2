// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "layered_cache.hpp"

#include <torch/csrc/stable/library.h>

#include "cpu_device.hpp"

namespace tessera_torch {

handles<layered_cache>& layered_caches() {
  static handles<layered_cache> made("layered_cache");
  return made;
}

namespace {

void begin(std::int64_t cache, std::int64_t tokens, std::vector<std::int64_t> counts) {
  layered_caches().get(cache)->begin(tokens, counts);
}
void write(std::int64_t cache, std::int64_t layer, Tensor keys, Tensor values) {
  layered_caches().get(cache)->write(layer, keys, values);
}
Tensor attend(std::int64_t cache, std::int64_t layer, Tensor queries, double scale) {
  return layered_caches().get(cache)->attend(layer, queries, scale);
}
void restore(std::int64_t cache, std::int64_t layer, Tensor keys, Tensor values) {
  layered_caches().get(cache)->restore(layer, keys, values);
}
void end(std::int64_t cache) {
  layered_caches().get(cache)->end();
}
void crop(std::int64_t cache, std::int64_t tokens) {
  layered_caches().get(cache)->crop(tokens);
}
void reorder(std::int64_t cache, std::vector<std::int64_t> origins) {
  layered_caches().get(cache)->reorder(origins);
}
void reset(std::int64_t cache) {
  layered_caches().get(cache)->reset();
}
std::vector<std::int64_t> lengths(std::int64_t cache) {
  return layered_caches().get(cache)->lengths();
}
std::tuple<std::int64_t, std::int64_t, std::int64_t> bytes(std::int64_t cache) {
  return layered_caches().get(cache)->bytes();
}
void free(std::int64_t cache) {
  layered_caches().free(cache);
}

}  // namespace
}  // namespace tessera_torch

STABLE_TORCH_LIBRARY_FRAGMENT(tessera_torch, m) {
  m.def(
      "layered_cache_make(Tensor on, int sequences, int tokens, int heads, int channels, int window, int[] layers, "
      "int[] key_bits, int[] value_bits, bool reorders) -> int");
  m.def("layered_cache_begin(int cache, int tokens, int[] counts) -> ()");
  m.def("layered_cache_write(int cache, int layer, Tensor keys, Tensor values) -> ()");
  m.def("layered_cache_attend(int cache, int layer, Tensor queries, float scale) -> Tensor");
  m.def("layered_cache_restore(int cache, int layer, Tensor(a!) keys, Tensor(b!) values) -> ()");
  m.def("layered_cache_end(int cache) -> ()");
  m.def("layered_cache_crop(int cache, int tokens) -> ()");
  m.def("layered_cache_reorder(int cache, int[] origins) -> ()");
  m.def("layered_cache_reset(int cache) -> ()");
  m.def("layered_cache_lengths(int cache) -> int[]");
  m.def("layered_cache_bytes(int cache) -> (int, int, int)");
  m.def("layered_cache_free(int cache) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CPU, m) {
  m.impl("layered_cache_make", TORCH_BOX(&tessera_torch::make_layered_cache<tessera_torch::cpu_device>));
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CompositeExplicitAutograd, m) {
  m.impl("layered_cache_begin", TORCH_BOX(&tessera_torch::begin));
  m.impl("layered_cache_write", TORCH_BOX(&tessera_torch::write));
  m.impl("layered_cache_attend", TORCH_BOX(&tessera_torch::attend));
  m.impl("layered_cache_restore", TORCH_BOX(&tessera_torch::restore));
  m.impl("layered_cache_end", TORCH_BOX(&tessera_torch::end));
  m.impl("layered_cache_crop", TORCH_BOX(&tessera_torch::crop));
  m.impl("layered_cache_reorder", TORCH_BOX(&tessera_torch::reorder));
  m.impl("layered_cache_reset", TORCH_BOX(&tessera_torch::reset));
  m.impl("layered_cache_lengths", TORCH_BOX(&tessera_torch::lengths));
  m.impl("layered_cache_bytes", TORCH_BOX(&tessera_torch::bytes));
  m.impl("layered_cache_free", TORCH_BOX(&tessera_torch::free));
}
