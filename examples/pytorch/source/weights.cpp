// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "weights.hpp"

#include <torch/csrc/stable/library.h>

#include "cpu_device.hpp"

STABLE_TORCH_LIBRARY_FRAGMENT(tessera_torch, m) {
  m.def("compress(Tensor weights) -> Tensor");
  m.def("decompress_into(Tensor stream, Tensor(a!) weights) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CPU, m) {
  m.impl("compress", TORCH_BOX(&tessera_torch::compress<tessera_torch::cpu_device>));
  m.impl("decompress_into", TORCH_BOX(&tessera_torch::decompress_into<tessera_torch::cpu_device>));
}
