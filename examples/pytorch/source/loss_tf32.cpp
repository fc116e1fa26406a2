// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cpu_device.hpp"
#include "rank_loss_programs.hpp"

template struct tessera_torch::loss_of<tessera_torch::cpu_device, tessera::tf32>;
template struct tessera_torch::loss_of<tessera_torch::cpu_device, tessera_torch::stored_as<tessera::tf32>>;
template struct tessera_torch::rank_loss_of<tessera_torch::cpu_device, tessera::tf32>;
template struct tessera_torch::rank_loss_of<tessera_torch::cpu_device, tessera_torch::stored_as<tessera::tf32>>;
