// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/csrc/stable/library.h>

#include "cuda_device.hpp"
#include "layered_cache.hpp"

STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CUDA, m) {
  m.impl("layered_cache_make", TORCH_BOX(&tessera_torch::make_layered_cache<tessera_torch::cuda_device>));
}
