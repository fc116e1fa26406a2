// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/csrc/stable/library.h>

#include "cuda_device.hpp"
#include "parameter_store.hpp"

STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CUDA, m) {
  m.impl("parameter_store_make", TORCH_BOX(&tessera_torch::make_parameter_store<tessera_torch::cuda_device>));
}
