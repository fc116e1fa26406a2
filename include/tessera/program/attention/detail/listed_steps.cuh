// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `list_step`, `listed_steps` and `list_cursor`: how a thread block of warpgroup_attention walks over the lists of
/// tiles of its warpgroups (view/attention_block_list.hpp).
///
/// Each warpgroup has 64 queries, and so a list of its own. One warp of the producer's warpgroup merges the lists of a
/// work item: it has a cursor in each, takes the least tile under a cursor as the next step, and advances the cursors
/// that are at this tile. So each entry of each list is in one step, whatever the order of the lists, also where it is
/// there twice; and where all lists ascend, warpgroups that see the same tile take the same step. The producer loads
/// the steps' tiles as it loads others. Warpgroups that do not take a step release its stage at once.
///
/// Count, for lists of half of the tiles, chosen at random for each block of 64 queries, and three warpgroups: seven
/// eighths of all tiles are loaded, and three halves of a warpgroup's work are done for each; a tile of 128 channels
/// has 32 KiB, which at the speed without lists (850 cycles for a warpgroup's tile) is 22 bytes a cycle of L2, of about
/// 25 that it has. Four warpgroups of 64 channels load fifteen sixteenths of all tiles, 14 bytes a cycle. A ring for
/// each warpgroup would load 38 and 29 bytes a cycle.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/tile/cuda/sm_90/message_ring.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// A step through lists, in one word: a tile, the warpgroups that take it, those of them that need no mask for it, and
/// whether it is the work item's last step.
struct list_step {
  static constexpr int tile_bits = 22;                   ///< of fewer than 2^29 keys
  static constexpr int most_warpgroups = 4;              ///< of a thread block
  static constexpr std::int32_t last = -2147483647 - 1;  ///< the bit of a last step

  std::int32_t word = 0;  ///< all of it

  /// The step to a tile. `takers`, `plain`: bit i is that of warpgroup i.
  [[nodiscard]] TESSERA_FN static constexpr list_step of(std::int32_t tile, unsigned takers, unsigned plain,
                                                         bool is_last) {
    unsigned const flags = takers << tile_bits | plain << (tile_bits + most_warpgroups);
    return {tile | static_cast<std::int32_t>(flags) | (is_last ? last : 0)};
  }
  /// The number of the tile.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t tile() const { return word & ((1 << tile_bits) - 1); }
  /// How many warpgroups take it; there is a step that none takes where all lists are empty.
  [[nodiscard]] TESSERA_FN constexpr int takers() const {
    int count = 0;
    for (int i = 0; i < most_warpgroups; ++i) {
      count += is_taken_by(i) ? 1 : 0;
    }
    return count;
  }
  /// Whether a warpgroup takes it.
  [[nodiscard]] TESSERA_FN constexpr bool is_taken_by(int warpgroup) const {
    return (word >> (tile_bits + warpgroup) & 1) != 0;
  }
  /// The bit of `word` that says whether the warpgroup that takes the step sees all of the tile's keys.
  [[nodiscard]] TESSERA_FN static constexpr std::int32_t plain_bit(int warpgroup) {
    return 1 << (tile_bits + most_warpgroups + warpgroup);
  }
  /// Whether the work item has no further step.
  [[nodiscard]] TESSERA_FN constexpr bool is_last() const { return word < 0; }
};

/// Steps in shared memory: on their way to the producer, and those of the stages of keys.
template <int Stages>
struct listed_steps {
  /// 8 steps are merged ahead of the producer.
  using ring_type = message_ring<list_step, 8>;
  /// Where merging, or the producer, is.
  using state_type = typename ring_type::state_type;

  ring_type merged;                            ///< steps that have been merged
  shared_message<list_step> of_stage[Stages];  ///< the step of each stage of keys
};

/// A lane's place in a list. Tiles from `begin` to `end` - 1 count, others are passed over.
struct list_cursor {
  static constexpr std::int32_t none = 0x7fffffff;  ///< no tile

  std::int32_t const* at;  ///< the first entry that has not been read
  std::int64_t stride;     ///< elements from entry to entry
  std::int32_t left;       ///< entries that have not been read
  std::int32_t begin;      ///< the first tile that counts
  std::int32_t end;        ///< one past the last tile that counts
  std::int32_t tile;       ///< the tile that the cursor is at; `none` behind the last
  std::int32_t next;       ///< the entry behind, which is read ahead

  /// Goes to the first tile.
  __device__ __forceinline__ void start() {
    next = read();
    advance();
  }
  /// Goes to the next tile that counts.
  __device__ __forceinline__ void advance() {
    do {
      tile = next;
      next = tile != none ? read() : none;
    } while (tile != none && (tile < begin || tile >= end));
  }

 private:
  /// An entry; `none` if there are no more.
  __device__ __forceinline__ std::int32_t read() {
    if (left == 0) {
      return none;
    }
    std::int32_t const found = *at;
    at += stride;
    --left;
    return found == none ? none - 1 : found;
  }
};

/// Merges the lists that lanes have cursors of, of which `is_plain`(tile) says whether the lane's rows see all of its
/// keys, and sends the steps: at least one. A warp.
template <int Stages, class IsPlain>
__device__ __forceinline__ void merge_lists(message_ring<list_step, Stages>& steps, pipeline_state<Stages>& to,
                                            list_cursor& own, IsPlain const& is_plain) {
  bool is_last = false;
  while (!is_last) {
    std::int32_t const tile = -largest_of_warp(-own.tile);
    bool const takes = own.tile == tile && tile != list_cursor::none;
    unsigned const takers = ballot_of_warp(takes);
    unsigned const plain = ballot_of_warp(takes && is_plain(tile));
    if (takes) {
      own.advance();
    }
    is_last = all_of_warp(own.tile == list_cursor::none);
    if (thread_index() % 32 == 0) {
      steps.send(to, list_step::of(takers == 0 ? 0 : tile, takers, plain, is_last));
    }
    to.advance();
  }
}

}  // namespace v0
}  // namespace tessera
