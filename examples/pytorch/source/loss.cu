// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/csrc/stable/library.h>

#include "cuda_device.hpp"
#include "loss_operators.hpp"

STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CUDA, m) {
  m.impl("loss_forward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::loss_forward<tessera_torch::cuda_device>>::call));
  m.impl("loss_backward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::loss_backward<tessera_torch::cuda_device>>::call));
  m.impl("loss_backward_into",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::loss_backward_into<tessera_torch::cuda_device>>::call));
  tessera_torch::cuda_workspace_bytes() = &tessera_torch::loss_workspace_bytes<tessera_torch::cuda_device>;
}
