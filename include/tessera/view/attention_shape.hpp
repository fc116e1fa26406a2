// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention_shape`: the extents of a call of attention.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The extents of attention. Query head h belongs to key head h / (query_heads / key_heads). Values may have another
/// number of channels than queries and keys: 192 and 128 in DeepSeek-V2 (arXiv 2405.04434, section 2.1).
struct attention_shape {
  std::int64_t batch;        ///< sequences of the batch
  std::int64_t query_heads;  ///< query heads of a sequence
  std::int64_t key_heads;    ///< key heads of a sequence, a divisor of the query heads
  std::int64_t queries;      ///< queries of the longest sequence
  std::int64_t keys;         ///< keys of the longest sequence
  std::int64_t channels;     ///< channels of a head of queries and of keys: the head dimension
  /// Channels of a head of values and of results; 0: as many as those of keys.
  std::int64_t value_channels = 0;

  /// Channels of a head of values and of results.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t channels_of_values() const {
    return value_channels != 0 ? value_channels : channels;
  }
  /// Whether values have as many channels as keys.
  [[nodiscard]] TESSERA_FN constexpr bool has_equal_channels() const { return channels_of_values() == channels; }

  friend constexpr bool operator==(attention_shape const& a, attention_shape const& b) {
    return a.batch == b.batch && a.query_heads == b.query_heads && a.key_heads == b.key_heads &&
           a.queries == b.queries && a.keys == b.keys && a.channels == b.channels &&
           a.channels_of_values() == b.channels_of_values();
  }
};

}  // namespace v0
}  // namespace tessera
