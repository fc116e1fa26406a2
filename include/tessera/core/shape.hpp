// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The extents of a matrix product as a type: rows and columns of the result, and the length of the sums.
///
///     using tile = tessera::shape<128, 256, 64>;   // C (128 x 256) += A (128 x 64) * B (64 x 256)
///     static_assert(tile::m * tile::n == 32768);
#pragma once

namespace tessera {
inline namespace v0 {

template <int M, int N, int K>
struct shape {
  static_assert(M > 0 && N > 0 && K > 0, "tessera: a shape<m, n, k> has positive extents");

  static constexpr int m = M;  ///< rows of a and of the sums
  static constexpr int n = N;  ///< columns of b and of the sums
  static constexpr int k = K;  ///< columns of a and rows of b: the number of products in each sum
};

}  // namespace v0
}  // namespace tessera
