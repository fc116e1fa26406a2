// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The executor for CPUs, and what all operators need: the other sources each define the operators of a function.
#include <torch/csrc/stable/library.h>

#include "cpu_device.hpp"

namespace tessera_torch {

tessera::cpu const& cpu_device::executor(torch::stable::Device const&) {
  static executor_type const exec;
  return exec;
}

namespace {

void wait(Tensor on) {
  cpu_device::executor(device_of<cpu_device>(on, {"wait", "elements"})).wait();
}

}  // namespace
}  // namespace tessera_torch

STABLE_TORCH_LIBRARY_FRAGMENT(tessera_torch, m) {
  m.def("wait(Tensor on) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CPU, m) {
  m.impl("wait", TORCH_BOX(&tessera_torch::wait));
}
