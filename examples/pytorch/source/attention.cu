// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/csrc/stable/library.h>

#include "attention.hpp"
#include "attention_devices.hpp"

STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CUDA, m) {
  using calls = tessera_torch::attention_of<tessera_torch::attention_on_cuda>;
  m.impl("attention", TORCH_BOX(&calls::padded));
  m.impl("attention_packed", TORCH_BOX(&calls::packed));
}
