// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `head_source`: reads the tokens of attention heads from a padded batch, or from sequences that lie one behind the
/// other, as they are stored or through a function.
///
///     head_source<bfloat16> const keys{{view, lengths}};
///     float const value = keys(sequence, head, token, channel);
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/map/as_stored.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// Values in memory, as floats.
template <class T>
struct stored_heads {
  head_view<T const> heads;       ///< batch x heads x tokens of the longest sequence x channels
  sequence_lengths lengths = {};  ///< tokens of each sequence; null: all are whole
  sequence_starts starts = {};    ///< where sequences lie one behind the other

  TESSERA_FN float operator()(std::int64_t sequence, std::int64_t head, std::int64_t token,
                              std::int64_t channel) const {
    std::int64_t const at = starts.row_of(sequence, token);
    return at < 0 ? 0.0F : static_cast<float>(load(heads(sequence, head, at, channel)));
  }
  /// Leaves `count` channels of a token, from `first` on, in memory.
  TESSERA_FN void read(std::int64_t sequence, std::int64_t head, std::int64_t token, std::int64_t first, int count,
                       float* to) const {
    std::int64_t const at = starts.row_of(sequence, token);
    bool const is_packed = at >= 0 && heads.strides[3] == 1;
    T const* const from = is_packed ? &heads(sequence, head, at, first) : nullptr;
    for (int i = 0; is_packed && i < count; ++i) {
      to[i] = static_cast<float>(load(from[i]));
    }
    for (int i = 0; !is_packed && i < count; ++i) {
      to[i] = (*this)(sequence, head, token, first + i);
    }
  }
};

template <class T, class Map = as_stored>
struct head_source {
  stored_heads<T> stored;  ///< the heads in memory
  Map map = {};            ///< the function through which they are read

  /// Sequences of the batch.
  TESSERA_FN constexpr std::int64_t batch() const { return stored.heads.extent(0); }
  /// Heads of a sequence.
  TESSERA_FN constexpr std::int64_t heads() const { return stored.heads.extent(1); }
  /// Tokens of the longest sequence.
  TESSERA_FN constexpr std::int64_t tokens() const { return stored.heads.extent(2); }
  /// Channels of a head.
  TESSERA_FN constexpr std::int64_t channels() const { return stored.heads.extent(3); }
  /// How many tokens a sequence has.
  TESSERA_FN std::int64_t length(std::int64_t sequence) const { return length_of(stored.lengths, sequence, tokens()); }
  TESSERA_FN float operator()(std::int64_t sequence, std::int64_t head, std::int64_t token,
                              std::int64_t channel) const {
    return map(stored, sequence, head, token, channel);
  }
  /// Leaves `count` channels of a token, from `first` on, in memory.
  TESSERA_FN void read(std::int64_t sequence, std::int64_t head, std::int64_t token, std::int64_t first, int count,
                       float* to) const {
    if constexpr (std::is_same_v<Map, as_stored>) {
      stored.read(sequence, head, token, first, count, to);
    } else {
      for (int i = 0; i < count; ++i) {
        to[i] = map(stored, sequence, head, token, first + i);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
