// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/csrc/stable/library.h>

#include "attention.hpp"
#include "cuda_device.hpp"

STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CUDA, m) {
  m.impl("attention", TORCH_BOX(&tessera_torch::attention<tessera_torch::cuda_device>));
}
