// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/csrc/stable/library.h>

#include "cuda_device.hpp"
#include "loss.hpp"

STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CUDA, m) {
  m.impl("loss_forward", TORCH_BOX(&tessera_torch::loss_on<tessera_torch::cuda_device>::forward));
  m.impl("loss_backward", TORCH_BOX(&tessera_torch::loss_on<tessera_torch::cuda_device>::backward));
}
