// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `sequence_lengths`: how many tokens each sequence of a padded batch has.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

/// Lengths of the sequences of a padded batch; null: all are as long as the extent. A longer length counts as the
/// extent.
using sequence_lengths = array_view<std::int32_t const>;

/// Tokens of a sequence, between 0 and `extent`.
[[nodiscard]] TESSERA_FN constexpr std::int64_t length_of(sequence_lengths const& lengths, std::int64_t sequence,
                                                          std::int64_t extent) {
  return lengths.data == nullptr ? extent : clamp(std::int64_t{lengths[sequence]}, std::int64_t{0}, extent);
}

}  // namespace v0
}  // namespace tessera
