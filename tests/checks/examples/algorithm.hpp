// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What examples of algorithms call by these names: algorithm.cmake, algorithm_attention.cmake, algorithm_cache.cmake,
// algorithm_weights.cmake.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/tile/source/dequantized.hpp>

namespace pieces {

using QK = tessera::sage_attention2::method::score_quantizer;
using PV = tessera::sage_attention2::method::value_quantizer;
using Softmax = tessera::sage_attention2::method::softmax;
using method = tessera::attention_method<QK, PV, Softmax>;

using layer = tessera::linear<tessera::bfloat16>;
using quantizer = tessera::symmetric_quantizer<8, 64>;

using Codec = tessera::neuzip;
using codec = Codec;

/// A Projector whose coefficients are zeros.
struct my_projector {
  static constexpr int rank = 16;
  struct basis_type {
    int width;
  };
  std::uint64_t seed = 0;

  [[nodiscard]] basis_type fit(float const*, std::int64_t, int width) const { return {width}; }
  void project(basis_type const&, float const*, float* coefficients) const {
    std::fill(coefficients, coefficients + rank, 0.0F);
  }
  void reconstruct(basis_type const& basis, float const*, float* row) const { std::fill(row, row + basis.width, 0.0F); }
};

}  // namespace pieces
