// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The part of kernel_levels that runs on a GPU, where it was built with CUDA and there is one.
#pragma once

#include "../support/text_table.hpp"

namespace tessera_examples {

bool has_gpu();
bool check_on_gpu(text_table& table);
/// Prints a table of times of a product of 4096^3 by each level and by cuBLAS.
void time_on_gpu();

}  // namespace tessera_examples
