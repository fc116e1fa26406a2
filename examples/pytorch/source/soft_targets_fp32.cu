// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cuda_device.hpp"
#include "rank_soft_targets_programs.hpp"

template struct tessera_torch::soft_targets_of<tessera_torch::cuda_device, float>;
template struct tessera_torch::soft_targets_of<tessera_torch::cuda_device, tessera_torch::stored_as<float>>;
template struct tessera_torch::rank_soft_targets_of<tessera_torch::cuda_device, float>;
template struct tessera_torch::rank_soft_targets_of<tessera_torch::cuda_device, tessera_torch::stored_as<float>>;
