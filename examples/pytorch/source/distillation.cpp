// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/csrc/stable/library.h>

#include "cpu_device.hpp"
#include "distillation_operators.hpp"

STABLE_TORCH_LIBRARY_FRAGMENT(tessera_torch, m) {
  m.def(
      "distillation_forward(Tensor e, Tensor c, Tensor teacher_e, Tensor teacher_c, Tensor? weights, Tensor? c_scale, "
      "Tensor? teacher_c_scale, int divergence, float beta, int reduction, float temperature, float softcap, float "
      "teacher_softcap, int workspace_budget, bool is_tf32, bool for_backward) -> (Tensor loss, Tensor workspace)");
  m.def(
      "distillation_backward(Tensor e, Tensor c, Tensor teacher_e, Tensor teacher_c, Tensor? weights, Tensor? "
      "c_scale, Tensor? teacher_c_scale, int divergence, float beta, int reduction, float temperature, float softcap, "
      "float teacher_softcap, int workspace_budget, bool is_tf32, Tensor workspace, Tensor by_loss, bool of_e, bool "
      "of_c) -> (Tensor, Tensor)");
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CPU, m) {
  m.impl("distillation_forward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::distillation_forward<tessera_torch::cpu_device>>::call));
  m.impl("distillation_backward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::distillation_backward<tessera_torch::cpu_device>>::call));
}
