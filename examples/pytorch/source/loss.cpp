// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "loss.hpp"

#include <torch/csrc/stable/library.h>

#include "cpu_device.hpp"

STABLE_TORCH_LIBRARY_FRAGMENT(tessera_torch, m) {
  m.def(
      "loss_forward(Tensor hidden, Tensor classifier, Tensor labels, int ignore_index, bool exact, bool for_backward) "
      "-> (Tensor, Tensor)");
  m.def(
      "loss_backward(Tensor hidden, Tensor classifier, Tensor labels, int ignore_index, bool exact, Tensor workspace, "
      "Tensor upstream, bool wants_hidden, bool wants_classifier) -> (Tensor, Tensor)");
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CPU, m) {
  m.impl("loss_forward", TORCH_BOX(&tessera_torch::loss_on<tessera_torch::cpu_device>::forward));
  m.impl("loss_backward", TORCH_BOX(&tessera_torch::loss_on<tessera_torch::cpu_device>::backward));
}
