// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/csrc/stable/library.h>

#include "cuda_device.hpp"
#include "top_entries_operators.hpp"

STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CUDA, m) {
  m.impl("top_log_probabilities",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::top_log_probabilities<tessera_torch::cuda_device>>::call));
}
