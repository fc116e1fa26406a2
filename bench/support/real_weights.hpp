// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Weights of a real model, from the repository's test data.
#pragma once

#include <cstdint>
#include <vector>

namespace bench {

/// The bits of every tensor of tests/data/minilm_bf16.safetensors. The folder can be named by TESSERA_TEST_DATA in the
/// environment. Throws where the file is not there or programs were built without a JSON library.
std::vector<std::vector<std::uint16_t>> minilm_bf16();

}  // namespace bench
