// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cuda_device.hpp"
#include "loss.hpp"

namespace tessera_torch {

loss_backend& cuda_loss() {
  static loss_on<cuda_device> found;
  return found;
}

}  // namespace tessera_torch
