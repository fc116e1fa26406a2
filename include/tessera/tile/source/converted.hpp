// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `converted`: the TileSource of a matrix of one Scalar whose elements are converted to another on the way into the
/// tile. So products take weights of 8 bits without scales, and scalars of a user's own, which no tensor core knows.
///
///     converted<float8_e4m3, bfloat16> const weights(matrix);              // matrix: a view of float8_e4m3
///     linear<bfloat16>::forward(exec, inputs, weights, outputs);
///
/// Elements are rounded where Value has fewer bits. Matrices of elements of one byte load 16 bytes at a time, and in
/// two steps, as those of a Quantizer's codes do (tile/source/dequantized.hpp).
#pragma once

#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/quantize/unscaled.hpp>
#include <tessera/tile/source/dequantized.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// From: the type of the matrix in memory; Value: the type of elements of tiles.
template <Scalar From, Scalar Value>
struct converted : dequantized<unscaled_quantizer<From>, Value> {
  /// The source of a matrix of any strides.
  TESSERA_FN constexpr explicit converted(matrix_view<From const> matrix)
      : dequantized<unscaled_quantizer<From>, Value>{{}, matrix, {}} {}
};

}  // namespace v0
}  // namespace tessera
