// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The entries of a vocabulary that matter to blocks of tokens, found from all logits, as the forward pass on sm_90a
/// marks them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera_examples {

/// For each block of 128 tokens and each entry 1 if |softmax - [label]| reaches the threshold for some token of the
/// block, or else 0. All logits are in memory while it runs.
inline std::vector<unsigned char> live_entries(tessera::cpu const& exec,
                                               tessera::matrix_view<tessera::bfloat16 const> states,
                                               tessera::matrix_view<tessera::bfloat16 const> classifier,
                                               std::vector<std::int32_t> const& labels, float threshold) {
  auto const tokens = static_cast<std::size_t>(states.extent(0));
  auto const vocabulary = static_cast<std::size_t>(classifier.extent(0));
  std::vector<float> logits(tokens * vocabulary);
  tessera::linear<tessera::bfloat16>::forward(
      exec, states, classifier, tessera::matrix_view<float>(logits.data(), {states.extent(0), classifier.extent(0)}));
  exec.wait();
  std::vector<unsigned char> matters((tokens + 127) / 128 * vocabulary);
  for (std::size_t token = 0; token < tokens; ++token) {
    float* const row = &logits[token * vocabulary];
    float const largest = *std::max_element(row, row + vocabulary);
    double sum = 0;
    for (std::size_t entry = 0; entry < vocabulary; ++entry) {
      row[entry] = std::exp(row[entry] - largest);
      sum += static_cast<double>(row[entry]);
    }
    auto const scale = static_cast<float>(1 / sum);
    unsigned char* const marks = &matters[token / 128 * vocabulary];
    for (std::size_t entry = 0; entry < vocabulary; ++entry) {
      float const target = static_cast<std::size_t>(labels[token]) == entry ? 1.0F : 0.0F;
      bool const is_below = std::abs(row[entry] * scale - target) < threshold;
      marks[entry] = static_cast<unsigned char>(marks[entry] | (is_below ? 0 : 1));
    }
  }
  return matters;
}

}  // namespace tessera_examples
