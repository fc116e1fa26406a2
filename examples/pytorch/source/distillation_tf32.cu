// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cuda_device.hpp"
#include "rank_distillation_programs.hpp"

template struct tessera_torch::distillation_of<tessera_torch::cuda_device, tessera::tf32>;
template struct tessera_torch::distillation_of<tessera_torch::cuda_device, tessera_torch::stored_as<tessera::tf32>>;
template struct tessera_torch::rank_distillation_of<tessera_torch::cuda_device, tessera::tf32>;
template struct tessera_torch::rank_distillation_of<tessera_torch::cuda_device,
                                                    tessera_torch::stored_as<tessera::tf32>>;
