// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/csrc/stable/library.h>

#include "cuda_device.hpp"
#include "soft_target_operators.hpp"

STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CUDA, m) {
  m.impl("soft_target_forward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::soft_target_forward<tessera_torch::cuda_device>>::call));
  m.impl("soft_target_backward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::soft_target_backward<tessera_torch::cuda_device>>::call));
  m.impl("chosen_log_probabilities",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::chosen_log_probabilities<tessera_torch::cuda_device>>::call));
}
