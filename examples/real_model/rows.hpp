// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The rows of the table, by what they make smaller.
#pragma once

#include <vector>

#include "measurement.hpp"

namespace tessera_examples {

/// Compressed caches: fewer bits, and merged layers.
std::vector<method_row> cache_rows(int layers);
/// Caches of which each token reads a part: ShadowKV.
std::vector<method_row> shadow_rows();
/// Attention over quantized queries, keys and values: SageAttention2.
std::vector<method_row> attention_rows();
/// Compressed weights: NeuZip.
std::vector<method_row> weight_rows();

}  // namespace tessera_examples
