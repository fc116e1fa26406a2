// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `listed_steps`, `step_plan` and `list_cursor`: how a thread block of warpgroup_attention walks over the lists of
/// tiles of its warpgroups (view/attention_block_list.hpp).
///
/// Each warpgroup has 64 queries, and so a list of its own. One warp of the producer's warpgroup merges the lists of a
/// work item: it has a cursor in each, takes the least tile under a cursor as the next step, and advances the cursors
/// that are at this tile. So each entry of each list is in one step, whatever the order of the lists, also where it is
/// there twice; and where all lists ascend, warpgroups that see the same tile take the same step. It sends up to 28
/// steps at a time, with a plan for each warpgroup, which so asks no memory before a step what to do. The producer
/// loads the steps' tiles as it loads others. Warpgroups that do not take a step release its stage at once.
///
/// Most plans are runs, of which all tiles that are taken are plain: seen whole, and not the sequence's first. Then a
/// step's bit says all of it, and the loop over them has one way to take a tile. A stage's keys and values arrive at
/// one barrier, so that passing over it is one wait and two arrivals of a lane.
///
/// Count, for lists of half of the tiles, chosen at random for each block of 64 queries, and three warpgroups: seven
/// eighths of all tiles are loaded, and three halves of a warpgroup's work are done for each; a tile of 128 channels
/// has 32 KiB, which at the speed without lists (850 cycles for a warpgroup's tile) is 22 bytes a cycle of L2, of about
/// 25 that it has, and which TMA writes to shared memory in 264 cycles, where tensor cores read 322 cycles for each
/// tile of a warpgroup. Four warpgroups of 64 channels load fifteen sixteenths of all tiles, 14 bytes a cycle. A ring
/// for each warpgroup would load 38 and 29 bytes a cycle.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/message_ring.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// A step through lists, in one word: a tile and the warpgroups that take it.
struct list_step {
  static constexpr int tile_bits = 22;       ///< of fewer than 2^29 keys
  static constexpr int most_warpgroups = 4;  ///< of a thread block

  std::int32_t word = 0;  ///< all of it

  /// The step to a tile. `takers`: bit i is that of warpgroup i.
  [[nodiscard]] TESSERA_FN static constexpr list_step of(std::int32_t tile, unsigned takers) {
    return {tile | static_cast<std::int32_t>(takers << tile_bits)};
  }
  /// The number of the tile.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t tile() const { return word & ((1 << tile_bits) - 1); }
  /// The warpgroups that take it, each with a bit; there is a step that none takes where all lists are empty.
  [[nodiscard]] TESSERA_FN constexpr unsigned takers() const { return static_cast<unsigned>(word) >> tile_bits; }
};

/// What a warpgroup does in steps that follow each other, in one word, so that it asks no memory before each tile:
/// loads from shared memory take 200 cycles beside tensor cores that read their operands there. A word has up to 28
/// steps if all tiles that are taken are plain: the warpgroup sees all of their keys, and none is the sequence's first
/// one; else up to 9, and says of each what it is.
struct step_plan {
  static constexpr int most = 9;         ///< steps
  static constexpr int most_plain = 28;  ///< steps where all tiles are plain

  std::int32_t word = 1 | last;  ///< all of it

  /// Steps, of which each has a bit in `taken` if it is taken, in `plain` if the warpgroup sees all keys of its tile,
  /// and in `first` if that is the sequence's first one. Behind them there are none of the work item (`is_last`), or
  /// others. `is_run`: all tiles that are taken are plain, also those of other warpgroups.
  [[nodiscard]] TESSERA_FN static constexpr step_plan of(int count, unsigned taken, unsigned plain, unsigned first,
                                                         bool is_run, bool is_last) {
    unsigned const steps = taken | 1U << count;
    unsigned const kinds = is_run ? run : plain << (most + 1) | first << (2 * most + 1);
    return {static_cast<std::int32_t>(steps | kinds | (is_last ? 1U << 31 : 0U))};
  }
  /// The same where no tile is taken without a mask.
  [[nodiscard]] TESSERA_FN constexpr step_plan all_masked() const {
    return {is_long() ? word | masked : word & ~plain_bits};
  }

  /// Whether there is a step.
  [[nodiscard]] TESSERA_FN constexpr bool has_step() const { return (word & step_bits()) != 1; }
  /// Whether the work item has no steps behind these.
  [[nodiscard]] TESSERA_FN constexpr bool is_last() const { return word < 0; }
  /// Whether all tiles that are taken are plain.
  [[nodiscard]] TESSERA_FN constexpr bool is_run() const { return (word & (run | masked)) == run; }
  /// Of a run: whether the next step is taken, the one behind and so on, in a bit each, behind which there is a one.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t run_steps() const { return word & long_bits; }
  /// Whether the next step is taken.
  [[nodiscard]] TESSERA_FN constexpr bool takes() const { return (word & 1) != 0; }
  /// Whether its tile needs no mask.
  [[nodiscard]] TESSERA_FN constexpr bool is_plain() const { return !is_long() && (word & 2 << most) != 0; }
  /// Whether its tile is the sequence's first one.
  [[nodiscard]] TESSERA_FN constexpr bool is_first() const { return !is_long() && (word & 2 << 2 * most) != 0; }
  /// How many steps there are.
  [[nodiscard]] __device__ __forceinline__ int count() const { return 31 - __clz(word & step_bits()); }
  /// Goes on to the step after. The kind of word stays.
  TESSERA_FN constexpr void advance() {
    std::int32_t const kept = word & (last | run | masked);
    word =
        is_long() ? kept | (word & long_bits) >> 1 : kept | ((word & short_word) >> 1 & ~(1 << most | 1 << 2 * most));
  }

 private:
  // Bits 0 to 8 say which steps are taken, with a 1 above the last; 10 to 18 which are plain, 19 to 27 which are first.
  // Of long words bits 0 to 27 say which steps are taken.
  static constexpr std::int32_t long_bits = (1 << 29) - 1;
  static constexpr std::int32_t short_word = (1 << 28) - 1;
  static constexpr std::int32_t short_bits = (2 << most) - 1;
  static constexpr std::int32_t plain_bits = ((1 << most) - 1) << (most + 1);
  static constexpr std::int32_t masked = 1 << 29;
  static constexpr std::int32_t run = 1 << 30;
  static constexpr std::int32_t last = -2147483647 - 1;

  [[nodiscard]] TESSERA_FN constexpr bool is_long() const { return (word & run) != 0; }
  [[nodiscard]] TESSERA_FN constexpr std::int32_t step_bits() const { return is_long() ? long_bits : short_bits; }
};

/// Steps that follow each other.
struct step_group {
  shared_message<step_plan> plans[list_step::most_warpgroups];  ///< of each warpgroup
  shared_message<list_step> steps[step_plan::most_plain];       ///< each step
};

/// Steps in shared memory: groups on their way to the producer and the consumers, and those of the stages of keys.
template <int Stages>
struct listed_steps {
  static constexpr int stages = 4;  ///< groups that are merged ahead of the consumers
  /// Where merging, the producer or a consumer is.
  using state_type = pipeline_state<stages>;

  stage_ring<stages> ring;                     ///< of groups
  step_group groups[stages];                   ///< groups
  shared_message<list_step> of_stage[Stages];  ///< the step of each stage of keys

  /// One thread, before fence_barrier_init(). `warps`: how many warps receive plans.
  __device__ __forceinline__ void init(int warps) { ring.init(list_step::most_warpgroups, 32 * warps + 1); }
  /// Waits for a warpgroup's plan of the next group, of which no tile is taken without a mask if it `masks_all`. A
  /// warp.
  [[nodiscard]] __device__ __forceinline__ step_plan receive(pipeline_count<stages>& count, int warpgroup,
                                                             bool masks_all) {
    state_type const at = count;
    ring.await_full(at);
    step_plan const read = groups[at.stage].plans[warpgroup].read();
    ring.empty[at.stage].arrive();
    count.go_on(1);
    step_plan const plan = masks_all ? read.all_masked() : read;
    return {static_cast<std::int32_t>(bits_of_warp(static_cast<unsigned>(plan.word)))};  // in a uniform register
  }
};

/// A tile of lists, whose number is read where it is needed, for it takes long.
class listed_tile {
 public:
  /// The tile of a step, which a warpgroup takes by its plan.
  __device__ __forceinline__ listed_tile(shared_message<list_step> const& step, step_plan const& plan)
      : step_(step), is_first_(plan.is_first()) {}

  /// The number of the tile.
  [[nodiscard]] __device__ __forceinline__ std::int32_t number() const { return step_.read().tile(); }
  /// A float that is there once the number and `value` have been read: behind it the stage may be released. It is
  /// neither's value.
  [[nodiscard]] __device__ __forceinline__ static float behind(std::int32_t number, float value) {
    return number == 0 ? -value : value;
  }
  /// Whether it is the sequence's first one.
  [[nodiscard]] __device__ __forceinline__ bool is_first() const { return is_first_; }

 private:
  shared_message<list_step> const& step_;
  bool is_first_;
};
/// The same of a tile of a run, which is not the sequence's first one.
class run_tile {
 public:
  /// The tile of a step.
  __device__ __forceinline__ explicit run_tile(shared_message<list_step> const& step) : step_(step) {}

  /// The number of the tile.
  [[nodiscard]] __device__ __forceinline__ std::int32_t number() const { return step_.read().tile(); }
  /// As listed_tile's.
  [[nodiscard]] __device__ __forceinline__ static float behind(std::int32_t number, float value) {
    return listed_tile::behind(number, value);
  }
  /// It is not.
  [[nodiscard]] __device__ __forceinline__ static bool is_first() { return false; }

 private:
  shared_message<list_step> const& step_;
};
/// The same of a tile whose number is known.
struct known_tile {
  std::int32_t tile;  ///< its number

  /// The number of the tile.
  [[nodiscard]] __device__ __forceinline__ std::int32_t number() const { return tile; }
  /// The value.
  [[nodiscard]] __device__ __forceinline__ static float behind(std::int32_t, float value) { return value; }
  /// Whether it is the sequence's first one.
  [[nodiscard]] __device__ __forceinline__ bool is_first() const { return tile == 0; }
};

/// Takes a warpgroup's part in the steps of a work item. `at`: where it is in the rings of keys and values, which
/// take_plain(tile), take_masked(tile) and pass_over() advance. `masks_all`(): whether no tile is taken without a mask.
/// Each way through a step waits for its stage by itself: with one wait for all of them ptxas keeps the parity of the
/// rings in memory, and loads it before each step.
template <int Stages, class MasksAll, class TakePlain, class TakeMasked, class PassOver>
__device__ __forceinline__ void walk_over_lists(listed_steps<Stages>& steps,
                                                pipeline_count<listed_steps<Stages>::stages>& count, int warpgroup,
                                                pipeline_state<Stages> const& at, MasksAll const& masks_all,
                                                TakePlain const& take_plain, TakeMasked const& take_masked,
                                                PassOver const& pass_over) {
  bool is_last = false;
  while (!is_last) {
    step_plan plan = steps.receive(count, warpgroup, masks_all());
    is_last = plan.is_last();
    if (plan.is_run()) {
      for (std::int32_t run = plan.run_steps(); run != 1; run >>= 1) {
        if ((run & 1) == 0) {
          pass_over();
        } else {
          take_plain(run_tile(steps.of_stage[at.stage]));
        }
      }
      continue;
    }
    for (; plan.has_step(); plan.advance()) {
      listed_tile const tile(steps.of_stage[at.stage], plan);
      if (!plan.takes()) {
        pass_over();
      } else if (plan.is_plain()) {
        take_plain(tile);
      } else {
        take_masked(tile);
      }
    }
  }
}

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
template <class Steps, class IsPlain>
__device__ __forceinline__ void merge_lists(Steps& steps, typename Steps::state_type& to, list_cursor& own,
                                            IsPlain const& is_plain) {
  constexpr int at_first = 3;  // so that the thread block's first loads begin early
  auto const lane = static_cast<int>(thread_index() % 32);
  bool is_last = false;
  for (int most = at_first; !is_last; most = step_plan::most_plain) {
    shared_barrier& full = steps.ring.await_empty(to);
    step_group& group = steps.groups[to.stage];
    bool is_run = true;
    unsigned taken = 0;
    unsigned plain = 0;
    unsigned first = 0;
    int count = 0;
    for (; count < most && !is_last; ++count) {
      std::int32_t const tile = -largest_of_warp(-own.tile);
      bool const takes = own.tile == tile && tile != list_cursor::none;
      bool const sees_all = takes && is_plain(tile);
      bool const goes_on = all_of_warp(!takes || (sees_all && tile != 0));
      if (count >= step_plan::most && !(is_run && goes_on)) {
        break;
      }
      is_run = is_run && goes_on;
      unsigned const takers = ballot_of_warp(takes);
      if (takes) {
        taken |= 1U << count;
        plain |= sees_all ? 1U << count : 0;
        first |= tile == 0 ? 1U << count : 0;
        own.advance();
      }
      is_last = all_of_warp(own.tile == list_cursor::none);
      if (lane == 0) {
        group.steps[count].write(list_step::of(takers == 0 ? 0 : tile, takers));
      }
    }
    if (lane < list_step::most_warpgroups) {  // each arrives for what it has written
      group.plans[lane].write(step_plan::of(count, taken, plain, first, is_run, is_last));
      full.arrive();
    }
    sync_warp();
    to.advance();
  }
}

}  // namespace v0
}  // namespace tessera
