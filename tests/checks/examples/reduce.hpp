// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What examples of reduce call by these names: reduce.cmake.
#pragma once

#include <utility>
#include <vector>

#include <tessera/core/float8.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/quantize/scaled_float.hpp>

namespace pieces {

/// The quantizer of a softmax's weights.
using Q = tessera::float8_quantizer<tessera::float8_e4m3>;

/// Some scores of a row, each with a value.
using row_piece = std::vector<std::pair<float, float>>;

inline float largest_of(row_piece const& piece) {
  float largest = -tessera::infinity;
  for (auto const& score : piece) {
    largest = tessera::maximum(largest, score.first);
  }
  return largest;
}

inline float number(Q::code_type code) {
  return tessera::load(code);
}

}  // namespace pieces
