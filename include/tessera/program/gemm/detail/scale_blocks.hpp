// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How many neighbouring rows of a ScaledSource share a scale: where these are many, a program has a scale for a block
/// of columns of a tile, not one for each.
#pragma once

namespace tessera {
inline namespace v0 {
namespace detail {

/// How many neighbouring rows of a source certainly share a scale.
template <class S>
inline constexpr int rows_of_a_scale = 1;
template <class S>
requires requires {
  S::rows_of_scale;
}
inline constexpr int rows_of_a_scale<S> = S::rows_of_scale;

/// How many neighbouring columns of tiles certainly share a scale, wherever tiles begin: a power of two.
template <class B>
inline constexpr int columns_of_a_scale = [] {
  int shared = 1;
  while (shared < 256 && rows_of_a_scale<B> % (2 * shared) == 0) {
    shared *= 2;
  }
  return shared;
}();
/// Whether 64 columns of a tile, as a thread or a warp has them, certainly share a scale.
template <class B>
inline constexpr bool shares_scales = columns_of_a_scale<B> >= 64;

}  // namespace detail
}  // namespace v0
}  // namespace tessera
