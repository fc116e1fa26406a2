// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/csrc/stable/library.h>

#include "cuda_device.hpp"
#include "shadow_kv.hpp"

STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CUDA, m) {
  m.impl("shadow_kv_make", TORCH_BOX(&tessera_torch::make_shadow_kv<tessera_torch::cuda_device>));
}
