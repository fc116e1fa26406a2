// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `mean_operands`: means of queries as encode_tiles leaves them for correct_tiles: in the type of keys, which they are
/// rounded to, each with its product with the mean key.
///
///     row       channels of T, zeros up to a multiple of 32; one float, factor * mean query . mean key, in 16 bytes
///     order     batch, query head, block of queries
///
/// Of each 32 channels, pairs number 4 t + s, t and s being 0 to 3, have place 4 s + t: the left operands that match
/// pieces of keys (tile/row_operands.hpp) are then whole matrices of 8 rows of 16 bytes, which ldmatrix takes.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

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
  /// Channels of a row in memory.
  [[nodiscard]] TESSERA_FN static constexpr std::int32_t padded(std::int32_t channels) {
    return divide_up(channels, 32) * 32;
  }
  /// Where a channel lies in its row.
  [[nodiscard]] TESSERA_FN static constexpr std::int32_t place_of(std::int32_t channel) {
    std::int32_t const pair = channel / 2 % 16;
    return channel / 32 * 32 + (pair % 4 * 4 + pair / 4) * 2 + channel % 2;
  }
  /// Writes the channel of a mean, if its row has a place for it.
  TESSERA_FN void put(std::int64_t mean, std::int32_t channels, std::int32_t channel, T value) const {
    if (channel < padded(channels)) {
      row(mean, channels)[place_of(channel)] = value;
    }
  }
  /// How many elements lie from one row to the next.
  [[nodiscard]] TESSERA_FN static constexpr std::int32_t row_elements(std::int32_t channels) {
    return padded(channels) + beside;
  }
  /// The product of a mean with the mean key.
  [[nodiscard]] TESSERA_FN float* product(std::int64_t mean, std::int32_t channels) const {
    return reinterpret_cast<float*>(row(mean, channels) + padded(channels));
  }
};

}  // namespace v0
}  // namespace tessera
