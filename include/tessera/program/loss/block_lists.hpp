// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Lists of the blocks of 128 tokens x 128 entries of the logits' gradient that the backward pass on sm_90a makes and
/// multiplies, for one part of the vocabulary. `list_loss_tiles` lists the tiles to be made, `list_loss_blocks` the
/// blocks to be multiplied; the other types read the lists.
///
/// Clusters compute tiles of 256 rows, so that a list belongs to a panel of two rows of blocks. It names, in order, the
/// positions along the panel where a block of either row is kept; both blocks are multiplied there.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/tile/gemm_schedule.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/tile_order.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// A part of the vocabulary: a range of slots in the order in which the backward pass takes entries.
struct loss_part_range {
  std::int64_t first;                      ///< first slot of the part
  std::int64_t entries;                    ///< slots of the part; the last part may have fewer
  std::int64_t vocabulary;                 ///< entries of the whole vocabulary
  std::int64_t const* alive;               ///< how many slots, the first ones, have gradients; null: all
  std::int32_t const* in_order = nullptr;  ///< not 0: entries are in their own order; null: they are

  /// Whether entries are in their own order, so that a slot is the entry's number.
  [[nodiscard]] TESSERA_FN constexpr bool is_in_order() const { return in_order == nullptr || *in_order != 0; }
  /// One past the last slot with a gradient.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t end() const {
    return alive != nullptr ? min(*alive, vocabulary) : vocabulary;
  }
  /// How many slots of this part have gradients.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t width() const {
    return clamp(end() - first, std::int64_t{0}, entries);
  }
  /// Whether there is nothing to do. The first part is always computed: it sets gradients of hidden states.
  [[nodiscard]] TESSERA_FN constexpr bool is_beyond() const { return first > 0 && first >= end(); }
  /// Whether the range is the first of the parts.
  [[nodiscard]] TESSERA_FN constexpr bool is_first() const { return first == 0; }
  /// Whether the range is the last of the parts that have a gradient.
  [[nodiscard]] TESSERA_FN constexpr bool is_last() const { return first + entries >= end(); }
};

/// An entry of a list of blocks: a block's number and a flag in one integer.
struct loss_list_entry {
  /// Packs a block and whether it is unclean.
  static TESSERA_FN constexpr std::int32_t make(std::int32_t block, bool is_unclean) {
    return block * 2 + (is_unclean ? 1 : 0);
  }
  /// The block that an entry names.
  static TESSERA_FN constexpr std::int32_t block(std::int32_t entry) { return entry / 2; }
  /// Whether a token of the block has hidden states that must not be multiplied.
  static TESSERA_FN constexpr bool is_unclean(std::int32_t entry) { return entry % 2 != 0; }
};

/// A work item of the products: a tile of 256 rows and some channels, summed over the blocks of a list.
struct loss_product_item {
  bool is_hidden;             ///< whether it is a tile of the hidden states' gradient, else of the classifier's
  std::int32_t panel;         ///< the panel of 256 rows; -1: nothing to do
  std::int32_t channel_tile;  ///< number of the tile along the channels
  std::int32_t count;         ///< length of the list
  bool is_unclean;            ///< whether some entry of the list is unclean
  std::int32_t const* list;   ///< the blocks, as loss_list_entry packs them
};

/// The schedule of both products: all their tiles, those of the classifier first. Where all lists of a product are as
/// long, and longer than the other's (`turns_of_long` is not 0), that product's tiles come first, and workers without
/// one in its last turn take that many more tiles of the other.
struct loss_product_schedule {
  /// Length * 2 of each list, + 1 if it is unclean: lists of the classifier's panels, then of hidden states' panels.
  std::int32_t const* counts;
  std::int32_t const* lists;  ///< lists of loss_list_entry, in the order of `counts`, each with room for all blocks
  std::int32_t classifier_panels;  ///< 0 if the gradient of the classifier is not wanted
  std::int32_t hidden_panels;      ///< 0 if the gradient of hidden states is not wanted
  std::int32_t channel_tiles;      ///< how many tiles cover the channels
  std::int32_t token_blocks;       ///< blocks of 128 tokens
  std::int32_t entry_blocks;       ///< blocks of 128 entries in the part
  std::int32_t band;               ///< channel tiles that are computed together for all panels
  /// How many tiles of the shorter lists take as long as one of the longer; 0: lists have any lengths.
  std::int32_t turns_of_long = 0;
  bool is_hidden_first = false;  ///< whether the tiles of hidden states come first, else those of the classifier

  [[nodiscard]] TESSERA_FN constexpr std::int32_t count() const {
    return (classifier_panels + hidden_panels) * channel_tiles;
  }
  /// How many turns all workers have; in some a worker may have nothing to do.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t turns(std::int32_t workers) const {
    if (turns_of_long == 0) {
      return divide_up(count(), workers);
    }
    std::int32_t const early = turns_of_long * (workers - first_tiles() % workers);
    std::int32_t const together = divide_up(max(count() - first_tiles() - early, 0), workers);
    return first_tiles() / workers + max(turns_of_long, 1) + together;
  }
  /// The work item of a worker in a turn. Every other turn goes backwards through the workers, so that the worker with
  /// the longest item of one turn gets the shortest of the next.
  [[nodiscard]] TESSERA_FN constexpr loss_product_item at(std::int32_t turn, std::int32_t worker,
                                                          std::int32_t workers) const {
    std::int32_t const in_turn = turn % 2 == 0 ? worker : workers - 1 - worker;
    std::int32_t const index = turns_of_long > 0 ? index_by_length(turn, worker, workers) : turn * workers + in_turn;
    if (index >= count()) {
      return {false, -1, 0, 0, false, nullptr};
    }
    bool const is_first = index < first_tiles();
    bool const is_hidden = is_first == is_hidden_first;
    tile_order const order{channel_tiles, is_hidden ? hidden_panels : classifier_panels, band};
    tile_coordinate const tile = order.at(is_first ? index : index - first_tiles());
    std::int32_t const panel = tile.column;
    std::int32_t const list = is_hidden ? classifier_panels + panel : panel;
    std::int32_t const count = counts[list];
    return {is_hidden, panel, tile.row, count / 2, count % 2 != 0, lists + first_of(is_hidden, panel)};
  }

  /// Where a panel's list begins.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t first_of(bool is_hidden, std::int32_t panel) const {
    return is_hidden ? std::int64_t{classifier_panels} * token_blocks + std::int64_t{panel} * entry_blocks
                     : std::int64_t{panel} * token_blocks;
  }

  /// How many tiles come first, where `turns_of_long` is not 0.
  TESSERA_FN constexpr std::int32_t first_tiles() const {
    return (is_hidden_first ? hidden_panels : classifier_panels) * channel_tiles;
  }

  /// The index of a worker's tile in a turn, where the longer lists come first. Workers that take tiles in the same
  /// turn take neighbours. At least count() where there is none.
  TESSERA_FN constexpr std::int32_t index_by_length(std::int32_t turn, std::int32_t worker,
                                                    std::int32_t workers) const {
    std::int32_t const whole = first_tiles() / workers;
    std::int32_t const rest = first_tiles() % workers;
    bool const has_more = worker < rest;
    if (turn < whole || (turn == whole && has_more)) {
      return turn * workers + worker;
    }
    std::int32_t const after = turn - whole - (has_more ? 1 : 0);
    if (!has_more && after < turns_of_long) {
      return first_tiles() + after * (workers - rest) + worker - rest;
    }
    std::int32_t const together = has_more ? after : after - turns_of_long;
    return first_tiles() + turns_of_long * (workers - rest) + together * workers + worker;
  }
};

/// Lists the kept blocks of each panel. Run with a group for each list. Sets the marks of kept blocks, which are read
/// once, back to 0.
struct list_loss_blocks {
  static constexpr int lanes = 128;
  struct scratch_type {};

  loss_part_range range;
  loss_product_schedule schedule;                 ///< the products that lists are for
  array_view<std::int32_t> counts;                ///< lengths of lists, in the format of loss_product_schedule::counts
  array_view<std::int32_t> lists;                 ///< lists of panels, in the format of loss_product_schedule::lists
  matrix_view<std::uint8_t> kept_for_hidden;      ///< blocks of tokens x blocks of entries
  matrix_view<std::uint8_t> kept_for_classifier;  ///< blocks of tokens x blocks of entries
  array_view<std::uint8_t const> unclean;         ///< 1 for each block of tokens that is unclean

  TESSERA_FN constexpr std::int64_t groups() const { return schedule.classifier_panels + schedule.hidden_panels; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    if (range.is_beyond()) {
      return;
    }
    auto const list = static_cast<std::int32_t>(which);
    bool const is_hidden = list >= schedule.classifier_panels;
    std::int32_t const panel = is_hidden ? list - schedule.classifier_panels : list;
    std::int64_t const begin = schedule.first_of(is_hidden, panel);
    // Marks beyond the part's end may be left from a part before.
    auto const entry_blocks = static_cast<std::int32_t>(divide_up(range.width(), std::int64_t{128}));
    std::int32_t const blocks = is_hidden ? entry_blocks : schedule.token_blocks;
    std::int32_t found = 0;
    bool is_unclean = false;
    for (std::int32_t first = 0; first < blocks; first += lanes) {
      per_lane<std::int32_t, G> index_in_list;
      per_lane<bool, G> is_kept;
      per_lane<bool, G> must_clean;
      for (int lane : group) {
        std::int32_t const block = first + lane;
        is_kept[lane] = block < blocks && (is_hidden ? take_hidden(panel, block) : take_classifier(panel, block));
        must_clean[lane] = is_kept[lane] && !is_hidden && unclean[block] != 0;
        index_in_list[lane] = is_kept[lane] ? 1 : 0;
      }
      std::int32_t const some = exclusive_sum(group, index_in_list);
      is_unclean = any(group, must_clean) || is_unclean;
      for (int lane : group) {
        if (is_kept[lane]) {
          lists[begin + found + index_in_list[lane]] = loss_list_entry::make(first + lane, must_clean[lane]);
        }
      }
      found += some;
    }
    for (int lane : group) {
      if (is_first(lane)) {
        counts[list] = found * 2 + (is_unclean ? 1 : 0);
      }
    }
  }

 private:
  /// Whether a block was kept; clears its mark. Blocks that do not exist were not kept.
  static TESSERA_FN bool take(matrix_view<std::uint8_t> const& kept, std::int64_t row, std::int64_t column) {
    if (row >= kept.extent(0) || column >= kept.extent(1) || kept(row, column) == 0) {
      return false;
    }
    kept(row, column) = 0;
    return true;
  }
  TESSERA_FN bool take_hidden(std::int64_t panel, std::int64_t block) const {
    bool const upper = take(kept_for_hidden, 2 * panel, block);
    return take(kept_for_hidden, 2 * panel + 1, block) || upper;
  }
  TESSERA_FN bool take_classifier(std::int64_t panel, std::int64_t block) const {
    bool const left = take(kept_for_classifier, block, 2 * panel);
    return take(kept_for_classifier, block, 2 * panel + 1) || left;
  }
};

/// The tiles of 256 tokens that are made, as a schedule of gemm_pingpong.
struct listed_loss_tiles {
  tile_coordinate const* tiles;    ///< coordinates of the part's tiles
  std::int32_t const* tile_count;  ///< how many tiles there are
  std::int32_t k_tiles;            ///< k-tiles of the depth, one for each pipeline stage

  [[nodiscard]] TESSERA_FN std::int32_t count() const { return *tile_count; }
  [[nodiscard]] TESSERA_FN gemm_work_item at(std::int32_t index) const {
    tile_coordinate const tile = tiles[index];
    return {tile.row, tile.column, 0, k_tiles};
  }
  [[nodiscard]] TESSERA_FN constexpr std::int32_t k_tile(std::int32_t k) const { return k; }
};

/// Lists the tiles of each part that are made; run with a group for each part. Where one of 2 x 2 blocks is alive all
/// four are made, because they may be multiplied together.
struct list_loss_tiles {
  static constexpr int lanes = 256;
  struct scratch_type {};

  loss_part_range first_part;             ///< the first part of the vocabulary
  matrix_view<std::uint8_t const> alive;  ///< blocks of tokens x all blocks of entries; null: all are alive
  std::int64_t token_blocks;              ///< blocks of 128 tokens
  std::int32_t columns;                   ///< entries of a tile
  std::int32_t band;                      ///< rows of tiles that are taken together
  matrix_view<tile_coordinate> tiles;     ///< the lists: parts x all tiles of a part
  array_view<std::int32_t> tile_count;    ///< how many tiles each part lists

  TESSERA_FN constexpr std::int64_t groups() const { return tile_count.size(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    loss_part_range range = first_part;
    range.first = first_part.first + which * range.entries;
    tile_order const order{static_cast<std::int32_t>(divide_up(token_blocks, std::int64_t{2})),
                           static_cast<std::int32_t>(divide_up(range.width(), std::int64_t{columns})), band};
    auto const all = static_cast<std::int32_t>(order.count());
    std::int32_t found = 0;
    for (std::int32_t first = 0; first < all; first += lanes) {
      per_lane<std::int32_t, G> rank;
      for (int lane : group) {
        rank[lane] = first + lane < all && is_alive(range, order.at(first + lane)) ? 1 : 0;
      }
      per_lane<std::int32_t, G> offset = rank;
      std::int32_t const some = exclusive_sum(group, offset);
      for (int lane : group) {
        if (rank[lane] != 0) {
          tiles(which, found + offset[lane]) = order.at(first + lane);
        }
      }
      found += some;
    }
    for (int lane : group) {
      if (is_first(lane)) {
        tile_count[which] = found;
      }
    }
  }

 private:
  TESSERA_FN bool is_alive(loss_part_range const& range, tile_coordinate tile) const {
    std::int64_t const before = range.first / 128;
    std::int64_t const first = before + std::int64_t{tile.column} * columns / 256 * 2;
    std::int64_t const last = before + ((std::int64_t{tile.column} + 1) * columns - 1) / 256 * 2 + 1;
    bool found = alive.data == nullptr;
    for (std::int64_t row = std::int64_t{2} * tile.row; row < std::int64_t{2} * tile.row + 2 && !found; ++row) {
      for (std::int64_t block = first; block <= last && !found; ++block) {
        found = row < alive.extent(0) && block < alive.extent(1) && alive(row, block) != 0;
      }
    }
    return found;
  }
};

}  // namespace v0
}  // namespace tessera
