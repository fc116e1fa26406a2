// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention.hpp"
#include "cuda_device.hpp"

namespace tessera_torch {

attention_backend& cuda_attention() {
  static attention_on<cuda_device> found;
  return found;
}

}  // namespace tessera_torch
