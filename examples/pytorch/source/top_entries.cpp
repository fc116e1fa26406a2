// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/csrc/stable/library.h>

#include "cpu_device.hpp"
#include "top_entries_operators.hpp"

STABLE_TORCH_LIBRARY_FRAGMENT(tessera_torch, m) {
  m.def(
      "top_log_probabilities(Tensor e, Tensor c, Tensor? bias, Tensor? c_scale, int k, float softcap, float "
      "temperature, bool is_tf32) -> (Tensor log_probabilities, Tensor entries, Tensor log_sum_exp)");
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CPU, m) {
  m.impl("top_log_probabilities",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::top_log_probabilities<tessera_torch::cpu_device>>::call));
}
