// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/csrc/stable/library.h>

#include "cpu_device.hpp"
#include "soft_target_operators.hpp"

STABLE_TORCH_LIBRARY_FRAGMENT(tessera_torch, m) {
  m.def(
      "soft_target_forward(Tensor e, Tensor c, Tensor entries, Tensor entry_weights, Tensor? bias, Tensor? weights, "
      "Tensor? c_scale, int reduction, float softcap, float temperature, float smoothing, float z_factor, float "
      "e_threshold, float c_threshold, int workspace_budget, bool is_tf32, bool for_backward) -> (Tensor loss, Tensor "
      "log_sum_exp, Tensor workspace)");
  m.def(
      "soft_target_backward(Tensor e, Tensor c, Tensor entries, Tensor entry_weights, Tensor? bias, Tensor? weights, "
      "Tensor? c_scale, int reduction, float softcap, float temperature, float smoothing, float z_factor, float "
      "e_threshold, float c_threshold, int workspace_budget, bool is_tf32, Tensor workspace, Tensor? by_loss, Tensor? "
      "by_log_sum_exp, bool of_e, bool of_c, bool of_bias) -> (Tensor, Tensor, Tensor)");
  m.def(
      "chosen_log_probabilities(Tensor e, Tensor c, Tensor entries, Tensor log_sum_exp, Tensor? bias, Tensor? "
      "c_scale, float softcap, float temperature) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CPU, m) {
  m.impl("soft_target_forward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::soft_target_forward<tessera_torch::cpu_device>>::call));
  m.impl("soft_target_backward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::soft_target_backward<tessera_torch::cpu_device>>::call));
  m.impl("chosen_log_probabilities",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::chosen_log_probabilities<tessera_torch::cpu_device>>::call));
}
