// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "parameter_store.hpp"

#include <torch/csrc/stable/library.h>

#include "cpu_device.hpp"

namespace tessera_torch {

handles<stored_parameters>& parameter_stores() {
  static handles<stored_parameters> made("parameter_store");
  return made;
}

namespace {

std::int64_t add(std::int64_t store, std::string name, Tensor weights) {
  return parameter_stores().get(store)->add(name, weights);
}
Tensor acquire(std::int64_t store, std::int64_t parameter) {
  return parameter_stores().get(store)->acquire(parameter);
}
void release(std::int64_t store, std::int64_t parameter) {
  parameter_stores().get(store)->release(parameter);
}
void update(std::int64_t store, std::int64_t parameter) {
  parameter_stores().get(store)->update(parameter);
}
void sgd_update(std::int64_t store, std::int64_t parameter, Tensor gradient, double rate) {
  parameter_stores().get(store)->sgd_update(parameter, gradient, rate);
}
bool prefetch(std::int64_t store, std::int64_t parameter) {
  return parameter_stores().get(store)->prefetch(parameter);
}
std::int64_t resolve(std::int64_t store) {
  return parameter_stores().get(store)->resolve();
}
void wait(std::int64_t store) {
  parameter_stores().get(store)->wait();
}
std::int64_t compressed_bytes(std::int64_t store, std::int64_t parameter) {
  return parameter_stores().get(store)->compressed_bytes(parameter);
}
std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t> bytes(std::int64_t store) {
  return parameter_stores().get(store)->bytes();
}
void free(std::int64_t store) {
  parameter_stores().free(store);
}

}  // namespace
}  // namespace tessera_torch

STABLE_TORCH_LIBRARY_FRAGMENT(tessera_torch, m) {
  m.def("parameter_store_make(Tensor on, int scratch_slots, float slack, int part) -> int");
  m.def("parameter_store_add(int store, str name, Tensor weights) -> int");
  m.def("parameter_store_acquire(int store, int parameter) -> Tensor");
  m.def("parameter_store_release(int store, int parameter) -> ()");
  m.def("parameter_store_update(int store, int parameter) -> ()");
  m.def("parameter_store_sgd_update(int store, int parameter, Tensor gradient, float rate) -> ()");
  m.def("parameter_store_prefetch(int store, int parameter) -> bool");
  m.def("parameter_store_resolve(int store) -> int");
  m.def("parameter_store_wait(int store) -> ()");
  m.def("parameter_store_compressed_bytes(int store, int parameter) -> int");
  m.def("parameter_store_bytes(int store) -> (int, int, int, int, int)");
  m.def("parameter_store_free(int store) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CPU, m) {
  m.impl("parameter_store_make", TORCH_BOX(&tessera_torch::make_parameter_store<tessera_torch::cpu_device>));
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CompositeExplicitAutograd, m) {
  m.impl("parameter_store_add", TORCH_BOX(&tessera_torch::add));
  m.impl("parameter_store_acquire", TORCH_BOX(&tessera_torch::acquire));
  m.impl("parameter_store_release", TORCH_BOX(&tessera_torch::release));
  m.impl("parameter_store_update", TORCH_BOX(&tessera_torch::update));
  m.impl("parameter_store_sgd_update", TORCH_BOX(&tessera_torch::sgd_update));
  m.impl("parameter_store_prefetch", TORCH_BOX(&tessera_torch::prefetch));
  m.impl("parameter_store_resolve", TORCH_BOX(&tessera_torch::resolve));
  m.impl("parameter_store_wait", TORCH_BOX(&tessera_torch::wait));
  m.impl("parameter_store_compressed_bytes", TORCH_BOX(&tessera_torch::compressed_bytes));
  m.impl("parameter_store_bytes", TORCH_BOX(&tessera_torch::bytes));
  m.impl("parameter_store_free", TORCH_BOX(&tessera_torch::free));
}
