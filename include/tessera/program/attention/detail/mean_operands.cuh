// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `mean_operands`: means of queries as encode_tiles leaves them for correct_tiles: in the type of keys, which they are
/// rounded to, each with its product with the mean key.
///
///     row       channels of T, then one float: factor * mean query . mean key, in 16 bytes
///     order     batch, query head, block of queries
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// Where means lie. T: bfloat16 or float16. Heads have a multiple of 8 channels, so that rows are whole 16 bytes.
template <class T>
struct mean_operands {
  static constexpr int beside = 16 / static_cast<int>(sizeof(T));  ///< elements that the product takes

  T* first;  ///< the first mean; at a multiple of 16 bytes

  /// The row of a mean.
  [[nodiscard]] TESSERA_FN T* row(std::int64_t mean, std::int32_t channels) const {
    return first + mean * row_elements(channels);
  }
  /// How many elements lie from one row to the next.
  [[nodiscard]] TESSERA_FN static constexpr std::int32_t row_elements(std::int32_t channels) {
    return channels + beside;
  }
  /// The product of a mean with the mean key.
  [[nodiscard]] TESSERA_FN float* product(std::int64_t mean, std::int32_t channels) const {
    return reinterpret_cast<float*>(row(mean, channels) + channels);
  }
};

}  // namespace v0
}  // namespace tessera
