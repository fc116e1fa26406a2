// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cpu_device.hpp"
#include "rank_soft_targets_programs.hpp"

template struct tessera_torch::soft_targets_of<tessera_torch::cpu_device, float>;
template struct tessera_torch::soft_targets_of<tessera_torch::cpu_device, tessera_torch::stored_as<float>>;
template struct tessera_torch::rank_soft_targets_of<tessera_torch::cpu_device, float>;
template struct tessera_torch::rank_soft_targets_of<tessera_torch::cpu_device, tessera_torch::stored_as<float>>;
