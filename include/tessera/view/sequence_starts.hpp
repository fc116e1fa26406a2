// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `sequence_starts`: where sequences of different lengths begin that are packed one behind the other.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

/// Where sequences begin that lie one behind the other, so that a head_view's stride from sequence to sequence is 0.
struct sequence_starts {
  /// The first token of each sequence; null: sequences have strides. A sequence that begins before 0 lies nowhere.
  array_view<std::int32_t const> first = {};
  std::int64_t total = 0;  ///< tokens of all sequences; nothing is read or written beyond them

  /// Where token `token` of a sequence lies; -1 for nowhere.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t row_of(std::int64_t sequence, std::int64_t token) const {
    if (first.data == nullptr) {
      return token;
    }
    std::int64_t const begin = first[sequence];
    return begin >= 0 && token >= 0 && begin + token < total ? begin + token : -1;
  }
};

}  // namespace v0
}  // namespace tessera
