// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cuda_device.hpp"
#include "rank_distillation_programs.hpp"

template struct tessera_torch::distillation_of<tessera_torch::cuda_device, tessera::bfloat16>;
template struct tessera_torch::distillation_of<tessera_torch::cuda_device, tessera_torch::stored_as<tessera::bfloat16>>;
template struct tessera_torch::rank_distillation_of<tessera_torch::cuda_device, tessera::bfloat16>;
template struct tessera_torch::rank_distillation_of<tessera_torch::cuda_device,
                                                    tessera_torch::stored_as<tessera::bfloat16>>;
