// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "call_time.hpp"

#include <torch/csrc/stable/library.h>

#include "attention_devices.hpp"

STABLE_TORCH_LIBRARY_FRAGMENT(tessera_torch, m) {
  m.def(
      "attention_call_time(Tensor queries, Tensor keys, Tensor values, Tensor(a!) result, bool is_causal, int calls) "
      "-> float");
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CPU, m) {
  m.impl("attention_call_time", TORCH_BOX(&tessera_torch::attention_call_time<tessera_torch::attention_on_cpu>));
}
