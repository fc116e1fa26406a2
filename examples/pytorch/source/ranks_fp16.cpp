// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cpu_device.hpp"
#include "rank_programs.hpp"

template struct tessera_torch::rank_loss_of<tessera_torch::cpu_device, tessera::float16>;
template struct tessera_torch::rank_soft_targets_of<tessera_torch::cpu_device, tessera::float16>;
template struct tessera_torch::rank_distillation_of<tessera_torch::cpu_device, tessera::float16>;
