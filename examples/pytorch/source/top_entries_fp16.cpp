// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cpu_device.hpp"
#include "rank_top_entries_programs.hpp"

template struct tessera_torch::top_entries_of<tessera_torch::cpu_device, tessera::float16>;
template struct tessera_torch::top_entries_of<tessera_torch::cpu_device, tessera_torch::stored_as<tessera::float16>>;
template struct tessera_torch::rank_top_entries_of<tessera_torch::cpu_device, tessera::float16>;
template struct tessera_torch::rank_top_entries_of<tessera_torch::cpu_device,
                                                   tessera_torch::stored_as<tessera::float16>>;
