// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The part of custom_kernel that runs on a GPU, where it was built with CUDA and there is one.
#pragma once

#include <cstdint>
#include <vector>

#include "layer_check.hpp"

namespace tessera_examples {

/// The layer that is timed.
struct timed_shape {
  std::int64_t columns = 28672;
  std::int64_t depth = 8192;
};

bool has_gpu();
bool check_on_gpu(std::vector<layer_data> const& layers, text_table& table);
/// Prints a table of times. Returns whether the results were right, which it checks before it times.
bool time_on_gpu(timed_shape shape);

}  // namespace tessera_examples
