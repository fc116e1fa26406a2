// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attend.hpp"
#include "attention_devices.hpp"

template void tessera_torch::attend<tessera_torch::attention_on_cuda, tessera_torch::eight_bits>(
    tessera_torch::attention_request const&);
