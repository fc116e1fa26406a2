// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/csrc/stable/library.h>

#include "attention_devices.hpp"
#include "call_time.hpp"

STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CUDA, m) {
  m.impl("attention_call_time", TORCH_BOX(&tessera_torch::attention_call_time<tessera_torch::attention_on_cuda>));
}
