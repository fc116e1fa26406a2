// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `row_terms`: what forward_by_warps knows of a row and does not ask for at once, in shared memory. What lanes keep in
/// registers is not in it.
#pragma once

#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/math.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// What is known of a row.
struct all_row_terms {
  static constexpr bool has_reference = true;
  float largest;      ///< the largest score of earlier tiles
  float reference;    ///< the reference of its weights
  float query_scale;  ///< the scale of the row's query

  __device__ __forceinline__ static all_row_terms of(float scale) { return {-infinity, -infinity, scale}; }
};
/// The same where lanes keep references.
struct largest_row_term {
  static constexpr bool has_reference = false;
  float largest;      ///< the largest score of earlier tiles
  float query_scale;  ///< the scale of the row's query

  __device__ __forceinline__ static largest_row_term of(float scale) { return {-infinity, scale}; }
};
/// The same where lanes keep both.
struct scale_row_term {
  static constexpr bool has_reference = false;
  float query_scale;  ///< the scale of the row's query

  __device__ __forceinline__ static scale_row_term of(float scale) { return {scale}; }
};

/// The terms of a row for such products. Only beside swizzled rows is there no room for references that nothing reads.
template <class Products>
using row_terms = std::conditional_t<
    Products::keeps_references && Products::keeps_largest, scale_row_term,
    std::conditional_t<Products::keeps_references && Products::are_swizzled, largest_row_term, all_row_terms>>;

}  // namespace detail
}  // namespace v0
}  // namespace tessera
