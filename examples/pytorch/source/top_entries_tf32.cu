// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cuda_device.hpp"
#include "rank_top_entries_programs.hpp"

template struct tessera_torch::top_entries_of<tessera_torch::cuda_device, tessera::tf32>;
template struct tessera_torch::top_entries_of<tessera_torch::cuda_device, tessera_torch::stored_as<tessera::tf32>>;
template struct tessera_torch::rank_top_entries_of<tessera_torch::cuda_device, tessera::tf32>;
template struct tessera_torch::rank_top_entries_of<tessera_torch::cuda_device, tessera_torch::stored_as<tessera::tf32>>;
