// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cuda_device.hpp"
#include "weights.hpp"

namespace tessera_torch {

weights_backend& cuda_weights() {
  static weights_on<cuda_device> found;
  return found;
}

}  // namespace tessera_torch
