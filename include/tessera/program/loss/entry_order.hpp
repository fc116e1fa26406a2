// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The order in which a filtered backward pass takes the vocabulary: first the entries that matter to many blocks of
/// tokens, and without those that matter to none. Five programs make the order from the marks of the forward pass
/// (loss/entry_marks.hpp): `mark_labels`, `class_entries`, `scatter_entries`, `find_alive_blocks`, `choose_order`. Then
/// `gather_entries` copies the rows of a part of the classifier together.
///
/// An entry's class is the part of the blocks of tokens that it matters to. Classes come in falling order, and the
/// entries of a class in their own order. If hardly any entry is left out, all entries are taken in the order of the
/// vocabulary, since copying rows together costs 1.5 % of a whole pass. So the order depends on the marks alone.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/loss/block_lists.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The marks of the forward pass, as the backward pass reads them.
struct loss_mark_reader {
  matrix_view<std::uint32_t> live;           ///< blocks of 128 tokens x words of 32 entries
  array_view<std::int32_t const> is_marked;  ///< one element; 0: there are no marks, everything matters

  /// Whether an entry matters to a block of tokens.
  TESSERA_FN bool is_live(std::int64_t block, std::int64_t entry) const {
    return (live(block, entry / 32) >> (entry % 32) & 1U) != 0;
  }
};

/// The memory that holds the order of entries, and its layout.
struct loss_entry_order {
  /// Classes of entries, by the part of the blocks of tokens that they matter to.
  static constexpr int classes = 16;
  static constexpr int group_entries = 1024;  ///< entries that a group sorts

  array_view<std::int32_t> entry_of;     ///< the entry in each slot of the order
  array_view<std::int32_t> slot_of;      ///< the slot of each entry
  array_view<std::uint8_t> class_of;     ///< the class of each entry: 0 matters to no token, 15 to all blocks
  array_view<std::int32_t> counts;       ///< how many entries there are, for classes in falling order, for groups
  array_view<std::int64_t> alive;        ///< one element: how many slots have a class above 0
  array_view<std::int32_t> dead_blocks;  ///< one element: how many blocks of 128 tokens x 128 slots do not matter
  array_view<std::int32_t> in_order;     ///< one element: whether entries are in their own order after all

  /// How many groups sort so many entries.
  static TESSERA_FN constexpr std::int64_t groups(std::int64_t vocabulary) {
    return divide_up(vocabulary, std::int64_t{group_entries});
  }
  TESSERA_FN constexpr std::int64_t groups() const { return groups(entry_of.size()); }
  /// The position in `counts` of a class and a group.
  TESSERA_FN constexpr std::int64_t count_at(int which, std::int64_t group) const {
    return (classes - 1 - which) * groups() + group;
  }
};

/// Marks the labels of tokens, which matter although their softmax may be small. Run with a group for each block of
/// tokens.
struct mark_labels {
  static constexpr int lanes = 128;
  struct scratch_type {
    std::int32_t labels[lanes];  ///< labels of the block's tokens; -1: none
  };

  loss_mark_reader marks;
  loss_token_list tokens;

  TESSERA_FN constexpr std::int64_t groups() const { return marks.live.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    if (marks.is_marked[0] == 0) {
      return;
    }
    for (int lane : group) {
      std::int64_t const token = which * lanes + lane;
      std::int64_t const row = token < tokens.row_of.size() ? tokens.row_of[token] : -1;
      scratch.labels[lane] = row >= 0 ? tokens.labels[row] : -1;
    }
    group.sync();
    for (int lane : group) {
      std::int32_t const label = scratch.labels[lane];
      bool is_new = label >= 0 && !marks.is_live(which, label);
      for (int other = 0; other < lane; ++other) {
        is_new = is_new && scratch.labels[other] != label;
      }
      if (is_new) {  // no other lane adds this bit
        group.atomic_add(marks.live(which, label / 32), std::uint32_t{1} << label % 32);
      }
    }
  }
};

/// Finds the class of each entry and counts them by class. Run with a group for each 1024 entries.
struct class_entries {
  static constexpr int lanes = 256;
  struct scratch_type {
    std::int32_t counts[loss_entry_order::classes];  ///< how many of the group's entries have each class
  };

  loss_mark_reader marks;
  loss_entry_order order;

  TESSERA_FN constexpr std::int64_t groups() const { return order.groups(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    for (int lane : group) {
      if (lane < loss_entry_order::classes) {
        scratch.counts[lane] = 0;
      }
    }
    group.sync();
    for (int lane : group) {
      for (int i = lane; i < loss_entry_order::group_entries; i += lanes) {
        std::int64_t const entry = which * loss_entry_order::group_entries + i;
        if (entry < order.class_of.size()) {
          int const own = class_of(entry);
          order.class_of[entry] = static_cast<std::uint8_t>(own);
          group.atomic_add(scratch.counts[own], 1);
        }
      }
    }
    group.sync();
    for (int lane : group) {
      if (lane < loss_entry_order::classes) {
        order.counts[order.count_at(lane, which)] = scratch.counts[lane];
      }
    }
  }

 private:
  TESSERA_FN int class_of(std::int64_t entry) const {
    constexpr std::int64_t most = loss_entry_order::classes - 1;
    std::int64_t const blocks = marks.live.extent(0);
    std::int64_t count = marks.is_marked[0] == 0 ? blocks : 0;
    for (std::int64_t block = 0; block < blocks && marks.is_marked[0] != 0; ++block) {
      count += marks.is_live(block, entry) ? 1 : 0;
    }
    return static_cast<int>(divide_up(count * most, blocks));
  }
};

/// Gives each entry its slot. Run with a group for each 1024 entries, which takes 128 at a time.
struct scatter_entries {
  static constexpr int lanes = 128;
  static constexpr int words = 4;  ///< words of counts, each with 16 bits for each of four classes
  struct scratch_type {
    std::int32_t first[loss_entry_order::classes];  ///< the first slot of each class for this group
    std::int32_t all[lanes];                        ///< entries of a class, of the groups that a lane has counted
    std::int32_t before[lanes];                     ///< of these, entries of groups before this one
  };

  loss_entry_order order;

  TESSERA_FN constexpr std::int64_t groups() const { return order.groups(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    find_first_slots(group, which, scratch);
    for (int i = 0; i < loss_entry_order::group_entries; i += lanes) {
      scatter_some(group, which * loss_entry_order::group_entries + i, scratch);
    }
  }

 private:
  static constexpr int lanes_of_class = lanes / loss_entry_order::classes;

  /// Each group adds up the counts of classes by itself, which saves a launch.
  template <Group G>
  TESSERA_FN void find_first_slots(G const& group, std::int64_t which, scratch_type& scratch) const {
    for (int lane : group) {
      std::int32_t all = 0;
      std::int32_t before = 0;
      for (std::int64_t other = lane % lanes_of_class; other < order.groups(); other += lanes_of_class) {
        std::int32_t const count = order.counts[order.count_at(lane / lanes_of_class, other)];
        all += count;
        before += other < which ? count : 0;
      }
      scratch.all[lane] = all;
      scratch.before[lane] = before;
    }
    group.sync();
    for (int lane : group) {
      if (lane < loss_entry_order::classes) {
        std::int32_t slot = 0;
        for (int i = (lane + 1) * lanes_of_class; i < lanes; ++i) {  // higher classes come first
          slot += scratch.all[i];
        }
        for (int i = lane * lanes_of_class; i < (lane + 1) * lanes_of_class; ++i) {
          slot += scratch.before[i];
        }
        scratch.first[lane] = slot;
        if (which == 0 && lane == 0) {
          order.alive[0] = slot;
          order.dead_blocks[0] = 0;
        }
      }
    }
    group.sync();
  }

  TESSERA_FN static constexpr std::int32_t field(std::uint64_t const (&packed)[words], int which) {
    return static_cast<std::int32_t>(packed[which / 4] >> which % 4 * 16 & 0xffff);
  }

  template <Group G>
  TESSERA_FN void scatter_some(G const& group, std::int64_t first, scratch_type& scratch) const {
    per_lane<std::int32_t, G> own;
    for (int lane : group) {
      own[lane] = first + lane < order.class_of.size() ? order.class_of[first + lane] : -1;
    }
    std::uint64_t totals[words];
    per_lane<std::int32_t, G> rank;
    for (int word = 0; word < words; ++word) {
      per_lane<std::uint64_t, G> ones;
      for (int lane : group) {
        ones[lane] = own[lane] >= 0 && own[lane] / 4 == word ? std::uint64_t{1} << own[lane] % 4 * 16 : 0;
      }
      totals[word] = exclusive_sum(group, ones);
      for (int lane : group) {
        if (own[lane] >= 0 && own[lane] / 4 == word) {
          rank[lane] = static_cast<std::int32_t>(ones[lane] >> own[lane] % 4 * 16 & 0xffff);
        }
      }
    }
    for (int lane : group) {
      if (own[lane] >= 0) {
        std::int32_t const slot = scratch.first[own[lane]] + rank[lane];
        order.entry_of[slot] = static_cast<std::int32_t>(first + lane);
        order.slot_of[first + lane] = slot;
      }
    }
    group.sync();
    for (int lane : group) {
      if (lane < loss_entry_order::classes) {
        scratch.first[lane] += field(totals, lane);
      }
    }
    group.sync();
  }
};

/// Finds, for blocks of 128 slots, the blocks of tokens that one of the slots matters to. Run with a group for each
/// 128 slots.
struct find_alive_blocks {
  static constexpr int lanes = 128;
  struct scratch_type {};

  loss_mark_reader marks;
  loss_entry_order order;
  matrix_view<std::uint8_t> alive;  ///< blocks of tokens x blocks of slots

  TESSERA_FN constexpr std::int64_t groups() const { return alive.extent(1); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const last = min(order.alive[0], order.entry_of.size());
    bool const is_marked = marks.is_marked[0] != 0;
    std::int32_t dead = 0;
    for (std::int64_t block = 0; block < alive.extent(0); ++block) {
      per_lane<bool, G> matters;
      for (int lane : group) {
        std::int64_t const slot = which * lanes + lane;
        matters[lane] = slot < last && (!is_marked || marks.is_live(block, order.entry_of[slot]));
      }
      bool const found = any(group, matters);
      dead += found ? 0 : 1;
      for (int lane : group) {
        if (is_first(lane)) {
          alive(block, which) = found ? 1 : 0;
        }
      }
    }
    for (int lane : group) {
      if (is_first(lane)) {
        group.atomic_add(order.dead_blocks[0], dead);
      }
    }
  }
};

/// Goes back to the entries' own order, with all blocks alive, where few blocks are dead. Run with a group for each
/// 1024 entries.
struct choose_order {
  static constexpr int lanes = 256;
  static constexpr std::int64_t least = 64;  ///< one of so many blocks must be dead for another order
  struct scratch_type {};

  loss_entry_order order;
  matrix_view<std::uint8_t> alive;  ///< blocks of tokens x blocks of slots

  TESSERA_FN constexpr std::int64_t groups() const { return order.groups(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    bool const in_order = order.dead_blocks[0] * least < alive.extent(0) * alive.extent(1);
    for (int lane : group) {
      if (in_order) {
        take_own_order(which, lane);
      }
      if (which == 0 && is_first(lane)) {
        order.in_order[0] = in_order ? 1 : 0;
        order.alive[0] = in_order ? order.entry_of.size() : order.alive[0];
      }
    }
  }

 private:
  TESSERA_FN void take_own_order(std::int64_t which, int lane) const {
    std::int64_t const first = which * loss_entry_order::group_entries;
    std::int64_t const end = min(first + loss_entry_order::group_entries, order.entry_of.size());
    for (std::int64_t entry = first + lane; entry < end; entry += lanes) {
      order.entry_of[entry] = static_cast<std::int32_t>(entry);
      order.slot_of[entry] = static_cast<std::int32_t>(entry);
    }
    for (std::int64_t block = first / 128; block < divide_up(end, std::int64_t{128}); ++block) {
      for (std::int64_t row = lane; row < alive.extent(0); row += lanes) {
        alive(row, block) = 1;
      }
    }
  }
};

/// Copies the rows of a part of the classifier together, with zeros where no entry is alive. Run with a group for each
/// row of the part. Rows begin at multiples of 16 bytes. Where entries are in their own order nothing is copied.
template <class T>
struct gather_entries {
  static constexpr int lanes = 128;
  struct scratch_type {};
  /// The 16 bytes that a lane moves at a time.
  struct alignas(16) piece {
    std::uint32_t words[4];  ///< words of the classifier's row
  };

  loss_part_range range;
  array_view<std::int32_t const> entry_of;  ///< the entry in each slot of the order
  matrix_view<T const> classifier;          ///< vocabulary x channels
  matrix_view<T> gathered;                  ///< entries of a part x channels

  TESSERA_FN constexpr std::int64_t groups() const { return gathered.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const end = range.width();
    if (range.is_in_order() || which >= divide_up(end, std::int64_t{256}) * 256) {
      return;
    }
    constexpr std::int64_t in_piece = sizeof(piece) / sizeof(T);
    T* const to = &gathered(which, 0);
    T const* const from = which < end ? &classifier(entry_of[range.first + which], 0) : nullptr;
    std::int64_t const pieces = classifier.extent(1) / in_piece;
    for (int lane : group) {
      for (std::int64_t i = lane; i < pieces; i += lanes) {
        reinterpret_cast<piece*>(to)[i] = from != nullptr ? reinterpret_cast<piece const*>(from)[i] : piece{};
      }
      for (std::int64_t i = pieces * in_piece + lane; i < classifier.extent(1); i += lanes) {
        to[i] = from != nullptr ? from[i] : T{};
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
