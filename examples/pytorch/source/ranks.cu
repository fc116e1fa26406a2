// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/csrc/stable/library.h>

#include "cuda_device.hpp"
#include "ranks_operators.hpp"

STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CUDA, m) {
  m.impl("rank_loss_bytes",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_loss_bytes<tessera_torch::cuda_device>>::call));
  m.impl("rank_loss_forward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_loss_forward<tessera_torch::cuda_device>>::call));
  m.impl("rank_loss_backward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_loss_backward<tessera_torch::cuda_device>>::call));
  m.impl("rank_soft_target_bytes",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_soft_target_bytes<tessera_torch::cuda_device>>::call));
  m.impl("rank_soft_target_forward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_soft_target_forward<tessera_torch::cuda_device>>::call));
  m.impl("rank_soft_target_backward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_soft_target_backward<tessera_torch::cuda_device>>::call));
  m.impl("rank_distillation_bytes",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_distillation_bytes<tessera_torch::cuda_device>>::call));
  m.impl("rank_distillation_forward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_distillation_forward<tessera_torch::cuda_device>>::call));
  m.impl("rank_distillation_backward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_distillation_backward<tessera_torch::cuda_device>>::call));
  m.impl("rank_chosen_bytes",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_chosen_bytes<tessera_torch::cuda_device>>::call));
  m.impl("rank_chosen_forward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_chosen_forward<tessera_torch::cuda_device>>::call));
  m.impl("rank_top_bytes",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_top_bytes<tessera_torch::cuda_device>>::call));
  m.impl("rank_top_forward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_top_forward<tessera_torch::cuda_device>>::call));
}
