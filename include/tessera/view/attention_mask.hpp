// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention_mask`: the interval of keys that a query sees. It is aligned to the bottom right: the last query of a
/// sequence is at the position of its last key.
///
///     attention_mask const mask{queries, keys, left, 0};        // causal, with a window of `left` keys before its own
///     key_interval const seen = mask.of(query);                 // from seen.first to seen.end - 1; maybe none
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {

/// The keys from `first` to `end` - 1.
struct key_interval {
  std::int64_t first;  ///< the first key
  std::int64_t end;    ///< one past the last key
};

struct attention_mask {
  std::int64_t queries;  ///< queries of the sequence
  std::int64_t keys;     ///< keys of the sequence
  std::int64_t left;     ///< keys before a query's own that it sees; negative: all
  std::int64_t right;    ///< keys behind a query's own that it sees; negative: all

  /// The keys that a query sees: none for a query beyond the last. Both ends grow with the query.
  [[nodiscard]] TESSERA_FN constexpr key_interval of(std::int64_t query) const {
    std::int64_t const own = query + keys - queries;
    std::int64_t const first = left < 0 || own < left ? 0 : own - left;
    std::int64_t const end = right < 0 || right >= keys - own ? keys : own + right + 1;
    return query < queries && first < end ? key_interval{first, end} : key_interval{0, 0};
  }
};

}  // namespace v0
}  // namespace tessera
