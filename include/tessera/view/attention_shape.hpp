// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention_shape`: the extents of a call of attention.
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// The extents of attention. Query head h belongs to key head h / (query_heads / key_heads). Values have as many
/// channels as keys.
struct attention_shape {
  std::int64_t batch;        ///< sequences of the batch
  std::int64_t query_heads;  ///< query heads of a sequence
  std::int64_t key_heads;    ///< key heads of a sequence, a divisor of the query heads
  std::int64_t queries;      ///< queries of the longest sequence
  std::int64_t keys;         ///< keys of the longest sequence
  std::int64_t channels;     ///< channels of a head: the head dimension

  friend constexpr bool operator==(attention_shape const&, attention_shape const&) = default;
};

}  // namespace v0
}  // namespace tessera
