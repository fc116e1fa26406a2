// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Chooses the chunks whose mean does not represent them, to be kept exactly: those with a key whose angle to the mean
/// of the chunk is widest. Attention sinks are among them (ShadowKV, arXiv 2410.21465, section 4.1).
///
///     tessera::keep_outliers<48> outliers;
///     float const cosine = outliers.cosine(product, key_square, mean_square);  // mean . key, key . key, mean . mean
///     // of a chunk the least cosine of its keys; the 48 chunks with the least ones are kept, ties to the earlier
#pragma once

#include <tessera/config.hpp>
#include <tessera/core/because.hpp>
#include <tessera/core/math.hpp>

namespace tessera {
inline namespace v0 {

/// Keeps `Count` chunks of each head; 0 keeps none.
template <int Count>
struct keep_outliers {
  static_assert(Count >= 0, "tessera: keep_outliers keeps a number of chunks");
  static constexpr int count = Count;  ///< chunks of a key head that stay on the device

  /// The cosine of a key and the mean of its chunk, from their products. It is 1 for two zeros, 0 for one zero, and
  /// minus infinity, the farthest from the mean, if a product is not finite.
  TESSERA_FN static float cosine(float product, float key_square, float mean_square) {
    if (!is_finite(product) || !is_finite(key_square) || !is_finite(mean_square)) {
      return -infinity;
    }
    if (key_square == 0.0F || mean_square == 0.0F) {
      return key_square == mean_square ? 1.0F : 0.0F;
    }
    return product / (sqrt(key_square) * sqrt(mean_square));
  }
};

// clang-format off
/// A number of chunks of each head that a cache keeps exactly: keep_outliers<n>.
template <class O>
concept OutlierCount =
    requires { requires O::count >= 0; }
        || because<"the outliers of a cache are a number: keep_outliers<48>, with static constexpr int count">;
// clang-format on

}  // namespace v0
}  // namespace tessera
