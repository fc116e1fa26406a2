// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `cache_sequences`: the sequences of a batch in a cache of compressed pages: where their pages and slots are, and how
/// many tokens they have.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The sequences of a batch. A sequence of no tokens is left out of all calls: its slot, pages and blocks may be
/// anything.
struct cache_sequences {
  static constexpr std::int64_t all = -1;  ///< as `count`: as many sequences as block tables

  matrix_view<std::int32_t const> blocks;       ///< the block of each page: sequence x page
  array_view<std::int32_t const> slots = {};    ///< the slot of each sequence; null: its own number
  array_view<std::int32_t const> lengths = {};  ///< tokens of each sequence, with the new ones of a call; null: no list
  array_view<std::int32_t const> pages = {};    ///< sealed pages of each sequence; null: as many as there can be
  std::int64_t count = all;                     ///< sequences of the batch

  /// The number of sequences.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t size() const { return count == all ? blocks.extent(0) : count; }
  /// The slot of a sequence.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t slot(std::int64_t sequence) const {
    return slots.data == nullptr ? sequence : slots[sequence];
  }
  /// The tokens of a sequence, with the new ones of the call.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t length(std::int64_t sequence) const {
    return lengths.data == nullptr ? 0 : lengths[sequence];
  }
};

}  // namespace v0
}  // namespace tessera
