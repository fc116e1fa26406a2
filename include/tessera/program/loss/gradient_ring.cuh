// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gradient_ring`: multiplies a part of the logits' gradient G into the gradients of hidden states (G C) and of the
/// classifier (G^T E) by mma.sync, in one persistent kernel, from sm_80 on. It does what loss_gradient_products
/// (gradient_products.cuh) does on sm_90a, from the same lists of blocks, with the same epilogues.
///
/// A thread block computes one tile after the other, first those of the classifier, summed over the tokens, then those
/// of hidden states, summed over the entries of the part, or the longer sums first (ByLength); a warp has 64 x 64 sums.
/// Operands pass through a ring of stages with 64 numbers of the depth each (tile/cuda/sm_80/swizzled_ring.cuh): G as
/// its rows lie, or across, and rows of C and E across the depth.
///
/// Sums are fp32. Rows of the classifier's gradient are written once, or added once to what they hold. Gradients of
/// hidden states are added up in fp32 from part to part: see detail/gradient_rows.cuh.
///
/// Cost: 4 * 128 * 128 * channels operations for each kept block of G. A thread block loads 32 KiB through L2 for 2.1e6
/// of them.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/shape.hpp>
#include <tessera/program/loss/block_lists.hpp>
#include <tessera/program/loss/detail/gradient_rows.cuh>
#include <tessera/program/loss/token_factors.hpp>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/gemm_tile.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_80/swizzled_ring.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/tile_order.hpp>
#include <tessera/tuning/gemm/linear.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// T: the type of operands, of 2 bytes. ByLength: whether tiles with longer sums come first, and workers without one in
/// the last turn of these take more of the others, for which schedule.turns_of_long says how many.
template <class T, class Gradient, gemm_ring_policy Policy, bool ByLength = false>
struct gradient_ring {
  using value_type = typename gemm_operand<T>::value_type;
  static constexpr int lanes = Policy.lanes;
  static constexpr int from_architecture = 800;
  static constexpr int blocks_per_multiprocessor = Policy.blocks;
  static constexpr bool is_persistent = true;
  static constexpr int rows = Policy.rows;         ///< rows of a tile: entries or tokens
  static constexpr int channels = Policy.columns;  ///< channels of a tile
  static constexpr int depth = 64;                 ///< depth of a stage, half of a block
  static_assert(rows == 128 && Policy.bytes == 128 && sizeof(value_type) == 2,
                "tessera: tiles of this program have 128 rows, and stages 64 numbers of 2 bytes");
  /// The group that runs it.
  using group_type = cuda_block<lanes>;
  using mma = gemm_tile<T, shape<rows, channels, 16>, group_type>;
  /// How a tile lies in registers.
  using registers = typename mma::registers;

  struct scratch_type {
    swizzled_ring<mma, Policy.stages> ring;  ///< stages of both operands
    sum_staging of_warp[lanes / 32];         ///< shared memory through which sums are written
    stage_ring<Policy.stages> barriers;      ///< of the ring
  };

  dense_chunks<value_type> gradient;    ///< tokens x entries of the part, rounded up to 8
  dense_chunks<value_type> hidden;      ///< tokens x channels
  dense_chunks<value_type> classifier;  ///< entries of the part x channels
  loss_product_schedule schedule;       ///< lists of panels of 256 rows, of which each has two tiles
  loss_part_range range;
  write_classifier_rows<Gradient> to_classifier;  ///< where sums of the classifier go
  add_hidden_rows<Gradient> to_hidden;            ///< where sums of hidden states go
  array_view<loss_token_factors const> tokens;

  /// Runs a thread block's work items. A launch has as many thread blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(group_type const& group, std::int64_t block, scratch_type& scratch) const {
    auto const workers = static_cast<std::int32_t>(blocks_in_grid());
    passage_type::init(scratch.barriers, group);
    passage_type passage{scratch.ring, scratch.barriers, {}};
    for (auto index = static_cast<std::int32_t>(block); index < places(workers); index += workers) {
      work_item const item = at(index);
      if (item.row < (item.is_hidden ? tokens.size() : range.width())) {
        typename mma::sum_tile sums;
        mma::clear(group, sums);
        if (item.is_hidden) {
          multiply<swizzled_order::along_depth>(group, passage, item, sums);
        } else {
          multiply<swizzled_order::across_depth>(group, passage, item, sums);
        }
        write(group, scratch, item, sums);
      }
    }
    async_copy_wait_all();
  }

 private:
  using passage_type = ring_passage<mma, Policy.stages>;
  /// A tile, summed over the blocks of its panel's list.
  struct work_item {
    bool is_hidden;            ///< whether it is a tile of the hidden states' gradient, else of the classifier's
    std::int32_t row;          ///< its first row
    std::int32_t channel;      ///< its first channel
    std::int32_t count;        ///< length of the list
    std::int32_t const* list;  ///< the blocks, as loss_list_entry packs them
  };

  /// How many places there are for tiles, of which some are empty where they are taken by length.
  __device__ __forceinline__ std::int32_t places(std::int32_t workers) const {
    if constexpr (ByLength) {
      return by_tiles().turns(workers) * workers;
    } else {
      return 2 * schedule.count();
    }
  }
  /// The schedule of panels that have one tile's rows.
  __device__ __forceinline__ loss_product_schedule by_tiles() const {
    loss_product_schedule tiles = schedule;
    tiles.classifier_panels *= 2;
    tiles.hidden_panels *= 2;
    return tiles;
  }
  /// The tile at a place, counted with those of the classifier first; at least all where there is none.
  __device__ __forceinline__ std::int32_t tile_by_length(std::int32_t place) const {
    auto const workers = static_cast<std::int32_t>(blocks_in_grid());
    loss_product_schedule const tiles = by_tiles();
    std::int32_t const index = tiles.index_by_length(place / workers, place % workers, workers);
    std::int32_t const first = tiles.first_tiles();
    std::int32_t const before = index < first ? tiles.count() - first : -first;  // those of the other product
    return tiles.is_hidden_first && index < tiles.count() ? index + before : index;
  }

  __device__ __forceinline__ work_item at(std::int32_t index) const {
    if constexpr (ByLength) {
      index = tile_by_length(index);
      if (index >= 2 * schedule.count()) {
        return {false, 0x7fffffff, 0, 0, nullptr};
      }
    }
    std::int32_t const of_classifier = 2 * schedule.classifier_panels * schedule.channel_tiles;
    bool const is_hidden = index >= of_classifier;
    tile_order const order{schedule.channel_tiles,
                           2 * (is_hidden ? schedule.hidden_panels : schedule.classifier_panels), schedule.band};
    tile_coordinate const tile = order.at(is_hidden ? index - of_classifier : index);
    std::int32_t const panel = tile.column / 2;
    std::int32_t const count = schedule.counts[is_hidden ? schedule.classifier_panels + panel : panel];
    return {is_hidden, tile.column * rows, tile.row * channels, count / 2,
            schedule.lists + schedule.first_of(is_hidden, panel)};
  }

  /// What fills the ring for a work item.
  template <swizzled_order OfG>
  struct filler {
    gradient_ring const& program;
    group_type const& group;
    swizzled_ring<mma, Policy.stages>& ring;
    work_item const& item;
    std::int32_t next;  ///< the next of the item's stages, two for each block of its list

    [[nodiscard]] __device__ __forceinline__ bool has_stage() const { return next < 2 * item.count; }
    __device__ __forceinline__ void begin(int to) const {
      if (has_stage()) {
        std::int32_t const entry = item.list[next / 2];
        program.template begin<OfG>(group, ring, item,
                                    {entry, (loss_list_entry::block(entry) * 2 + next % 2) * depth, to});
      }
    }
    __device__ __forceinline__ void advance() { ++next; }
  };

  /// Multiplies the blocks of a list. OfG: how G lies, as seen from the depth.
  template <swizzled_order OfG>
  __device__ __forceinline__ void multiply(group_type const& group, passage_type& passage, work_item const& item,
                                           typename mma::sum_tile& sums) const {
    filler<OfG> fill{*this, group, passage.ring, item, 0};
    if (fill.has_stage()) {
      passage.begin(fill);
      multiply_swizzled<OfG, swizzled_order::across_depth>(group, passage, 2 * item.count, fill, sums);
    }
  }

  /// The depth of a stage.
  struct stage_place {
    std::int32_t entry;  ///< the list's entry
    std::int32_t first;  ///< the first token, or the first entry of the part
    int stage;           ///< where it goes
  };
  template <swizzled_order OfG>
  __device__ __forceinline__ void begin(group_type const& group, swizzled_ring<mma, Policy.stages>& ring,
                                        work_item const& item, stage_place const& at) const {
    stage_across<value_type, channels> b{ring.b[at.stage]};
    if constexpr (OfG == swizzled_order::along_depth) {
      gradient.begin_load(group, stage_along<value_type, rows>(ring.a[at.stage]), item.row, at.first);
      classifier.begin_load(group, b, at.first, item.channel);
    } else {
      stage_across<value_type, rows> a{ring.a[at.stage]};
      gradient.begin_load(group, a, at.first, item.row);
      if (loss_list_entry::is_unclean(at.entry)) {
        begin_labelled(group, b, at.first, item.channel);
      } else {
        hidden.begin_load(group, b, at.first, item.channel);
      }
    }
  }
  /// Starts to load rows of hidden states, with zeros for tokens without a label: their zeros in G cannot undo a NaN or
  /// an infinity among the hidden states.
  __device__ __forceinline__ void begin_labelled(group_type const& group, stage_across<value_type, channels> const& to,
                                                 std::int32_t first_token, std::int32_t first_channel) const {
    constexpr int chunks = channels / tile_chunk<value_type>::size;
    matrix_view<value_type const> const from = hidden.matrix;
#pragma unroll 1
    for (int i = group.lane; i < depth * chunks; i += lanes) {
      std::int64_t const token = first_token + i / chunks;
      std::int64_t const channel = first_channel + i % chunks * tile_chunk<value_type>::size;
      bool const is_there = token < tokens.size() && channel < from.extent(1) && tokens[token].label >= 0;
      auto const* const element = is_there ? &from(token, channel) : from.data;
      copies_in_flight<group_type>::begin(to.chunk(i / chunks, i % chunks * tile_chunk<value_type>::size),
                                          reinterpret_cast<tile_chunk<value_type> const*>(element), is_there);
    }
  }

  /// Writes a tile's sums, 16 rows of a warp at a time.
  __device__ __forceinline__ void write(group_type const& group, scratch_type& scratch, work_item const& item,
                                        typename mma::sum_tile& sums) const {
    if (item.count == 0 && !(item.is_hidden ? to_hidden.takes_nothing(range) : to_classifier.takes_nothing())) {
      return;
    }
    auto const place = registers::of(group);
    sum_staging& staging = scratch.of_warp[group.lane / 32];
    each_sixteen_rows<mma>(sums, [&](int tile, auto const& own) {
      std::int32_t const row = item.row + place.row + 16 * tile;
      if (item.is_hidden) {
        to_hidden(range, tokens, own, row, item.channel + place.column, staging);
      } else {
        to_classifier(range, own, row, item.channel + place.column, staging);
      }
    });
  }
};

}  // namespace v0
}  // namespace tessera
