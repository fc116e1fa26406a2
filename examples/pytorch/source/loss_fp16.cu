// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cuda_device.hpp"
#include "loss_programs.hpp"

template struct tessera_torch::loss_of<tessera_torch::cuda_device, tessera::float16>;
