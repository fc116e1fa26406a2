// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/csrc/stable/library.h>

#include "cuda_device.hpp"
#include "distillation_operators.hpp"

STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CUDA, m) {
  m.impl("distillation_forward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::distillation_forward<tessera_torch::cuda_device>>::call));
  m.impl("distillation_backward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::distillation_backward<tessera_torch::cuda_device>>::call));
}
