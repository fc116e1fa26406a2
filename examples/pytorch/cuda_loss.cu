// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/algorithm/linear_loss.cuh>

#include "cuda_device.hpp"
#include "loss.hpp"

namespace tessera_torch {

loss_backend& cuda_loss() {
  static loss_on<cuda_device> found;
  return found;
}

}  // namespace tessera_torch
