// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/csrc/stable/library.h>

#include "cuda_device.hpp"
#include "weights.hpp"

STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CUDA, m) {
  m.impl("compress", TORCH_BOX(&tessera_torch::compress<tessera_torch::cuda_device>));
  m.impl("decompress_into", TORCH_BOX(&tessera_torch::decompress_into<tessera_torch::cuda_device>));
}
