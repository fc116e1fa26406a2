// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/exec/side_queue.hpp>

#include "caches.hpp"
#include "cuda_device.hpp"

namespace tessera_torch {

caches_backend& cuda_caches() {
  static caches_on<cuda_device> found;
  return found;
}

}  // namespace tessera_torch
