// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cuda_device.hpp"
#include "rank_loss_programs.hpp"

template struct tessera_torch::loss_of<tessera_torch::cuda_device, float>;
template struct tessera_torch::loss_of<tessera_torch::cuda_device, tessera_torch::stored_as<float>>;
template struct tessera_torch::rank_loss_of<tessera_torch::cuda_device, float>;
template struct tessera_torch::rank_loss_of<tessera_torch::cuda_device, tessera_torch::stored_as<float>>;
