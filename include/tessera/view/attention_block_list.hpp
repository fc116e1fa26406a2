// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention_block_list`: which tiles of keys each block of queries attends to, for block-sparse attention.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// The tiles of 128 keys that each block of 64 queries sees, within the mask: the first counts() of each list. Numbers
/// that are no tile of keys are passed over; a tile that is listed twice counts twice.
struct attention_block_list {
  static constexpr int queries = 64;  ///< queries of a block, which have a list

  view<std::int32_t const, 3> counts = {};  ///< batch x query heads x blocks of 64 queries; null: all tiles
  view<std::int32_t const, 4> tiles = {};   ///< batch x query heads x blocks of 64 queries x the most tiles of a list

  /// The number of tiles in the list of a block of queries.
  [[nodiscard]] TESSERA_FN std::int64_t count(std::int64_t sequence, std::int64_t head, std::int64_t block) const {
    return clamp(std::int64_t{counts(sequence, head, block)}, std::int64_t{0}, tiles.extent(3));
  }
};

}  // namespace v0
}  // namespace tessera
