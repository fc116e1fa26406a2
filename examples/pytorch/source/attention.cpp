// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention.hpp"

#include <torch/csrc/stable/library.h>

#include "cpu_device.hpp"

STABLE_TORCH_LIBRARY_FRAGMENT(tessera_torch, m) {
  m.def("attention(Tensor queries, Tensor keys, Tensor values, bool is_causal, float scale) -> (Tensor, Tensor)");
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CPU, m) {
  m.impl("attention", TORCH_BOX(&tessera_torch::attention<tessera_torch::cpu_device>));
}
