// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `loss_gradient_products`: what a part of the logits' gradient G adds to the gradients of hidden states (G C) and of
/// the classifier (G^T E), both in one launch of sm_90a's tensor cores: linear_loss's backward pass, after
/// gemm_on_warpgroups has made G.
///
/// Clusters of two thread blocks compute 256 x 256 sums at a time and go on to the next: first those of the classifier,
/// over the tokens, then those of hidden states, over the entries of the part. All operands come as boxes of 64 x 64
/// elements by the copy engine: G as its rows lie, or across, and rows of C and E across the depth. Rows of C and E are
/// for both blocks; each copies half of them. Only blocks of G that loss_block_lists name are multiplied; where one is
/// kept for one of the two thread blocks alone, the other waits for the next.
///
/// Sums are fp32. Rows of the classifier's gradient are written once. Gradients of hidden states are added up in fp32
/// from part to part: where they are stored in 16 bits the upper half of the fp32 bits stays in the result and the
/// lower half in the workspace, until the last part rounds them.
///
/// Cost: 4 * 128 * 128 * channels operations for each kept block of G; a block copies 40 KiB through L2 for 4.2e6 of
/// them.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/program/gemm_on_warpgroups.cuh>
#include <tessera/program/loss_block_lists.hpp>
#include <tessera/program/loss_gradient_rows.cuh>
#include <tessera/program/loss_token_factors.hpp>
#include <tessera/tile/cuda/barrier.cuh>
#include <tessera/tile/cuda/bulk_tensor.cuh>
#include <tessera/tile/cuda/cluster.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/register_budget.cuh>
#include <tessera/tile/cuda/warpgroup_mma.cuh>
#include <tessera/tuning/linear.hpp>

namespace tessera {
inline namespace v0 {

template <class T, class Gradient, warpgroup_gemm_policy Policy>
struct loss_gradient_products {
  static_assert(Policy.blocks == 2 && Policy.columns == 256, "tessera: this program computes 256 x 256 in clusters of 2");
  using shape = warpgroup_gemm_shape;
  static constexpr int lanes = shape::warpgroup * (1 + shape::consumers);
  static constexpr int blocks_per_cluster = 2;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  static constexpr bool is_persistent = true;
  static constexpr int box = 64;  ///< rows and columns of all boxes
  static constexpr int box_bytes = box * box * 2;
  static constexpr int tile = 256;

  struct scratch_type {
    alignas(1024) unsigned char a[Policy.stages][2][box_bytes];  ///< a box for each of the warpgroups that multiply
    alignas(1024) unsigned char b[Policy.stages][4][box_bytes];
    sum_staging of_warp[4 * shape::consumers];
    shared_barrier full[Policy.stages];
    shared_barrier empty[Policy.stages];
  };

  tensor_map gradient;    ///< tokens x entries of the part
  tensor_map hidden;      ///< tokens x channels
  tensor_map classifier;  ///< entries of the part x channels
  loss_product_works works;
  loss_part_range range;
  write_classifier_rows<Gradient> to_classifier;
  add_hidden_rows<Gradient> to_hidden;
  array_view<loss_token_factors const> tokens;

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t block,
                                             scratch_type& scratch) const {
    if (range.is_beyond()) {
      return;
    }
    if (group.lane == 0) {
      prepare(scratch);
    }
    sync_cluster();
    const auto worker = static_cast<std::int32_t>(block / 2);
    const int warpgroup = __shfl_sync(0xffffffffU, group.lane / shape::warpgroup, 0);
    if (warpgroup == 0) {
      lower_registers<Policy.producer_registers>();
      if (group.lane == 0) {
        produce(scratch, worker);
      }
    } else {
      raise_registers<Policy.consumer_registers>();
      consume(scratch, worker, warpgroup - 1, group.lane % shape::warpgroup);
    }
    __syncwarp();
    sync_cluster();  // no block ends while the other still writes to its shared memory
  }

 private:
  using sums_type = float[128];
  using fetched_type = typename add_hidden_rows<Gradient>::fetched_type;
  static constexpr operand_order along = operand_order::along_depth;
  static constexpr operand_order across = operand_order::across_depth;

  struct ring_place {
    int stage = 0;
    unsigned phase = 0;
    __device__ __forceinline__ void advance() {
      if (++stage == Policy.stages) {
        stage = 0;
        phase ^= 1;
      }
    }
  };

  __device__ __forceinline__ void prepare(scratch_type& scratch) const {
    prefetch_tensor_map(gradient);
    prefetch_tensor_map(hidden);
    prefetch_tensor_map(classifier);
    for (int stage = 0; stage < Policy.stages; ++stage) {
      scratch.full[stage].init(1);
      scratch.empty[stage].init(2 * shape::consumers * 4);  // a warp each
    }
    fence_barrier_init();
  }

  __device__ __forceinline__ void produce(scratch_type& scratch, std::int32_t worker) const {
    const auto own = static_cast<std::int32_t>(rank_in_cluster());
    const auto workers = static_cast<std::int32_t>(gridDim.x) / 2;
    ring_place place;
    for (std::int32_t turn = 0; turn * workers < works.count(); ++turn) {
      const loss_product_work work = works.at(turn, worker, workers);
      for (std::int32_t i = 0; i < work.count; ++i) {
        const std::int32_t entry = work.list[i];
        for (std::int32_t half = 0; half < 2; ++half) {
          copy_piece(scratch, work, loss_list_entry::block(entry) * 2 + half, own, place);
          place.advance();
        }
      }
    }
  }

  /// Number `k` of 64 tokens, or 64 entries.
  __device__ __forceinline__ void copy_piece(scratch_type& scratch, loss_product_work const& work, std::int32_t k,
                                             std::int32_t own, ring_place place) const {
    constexpr std::uint16_t everyone = 3;
    const int stage = place.stage;
    shared_barrier& full = scratch.full[stage];
    scratch.empty[stage].wait(place.phase ^ 1);
    full.arrive_and_expect(6 * box_bytes);
    const std::int32_t first = work.panel * tile + own * 2 * box;
    const std::int32_t channel = work.channel_tile * tile + own * 2 * box;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const box_place piece = work.is_hidden ? box_place{k * box, first + i * box} : box_place{first + i * box, k * box};
      load_box(scratch.a[stage][i], gradient, full, piece);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      load_box_for_cluster(scratch.b[stage][2 * own + i], work.is_hidden ? classifier : hidden, full,
                           {channel + i * box, k * box}, everyone);
    }
  }

  __device__ __forceinline__ void consume(scratch_type& scratch, std::int32_t worker, int consumer, int lane) const {
    const auto own = static_cast<std::int32_t>(rank_in_cluster());
    const auto workers = static_cast<std::int32_t>(gridDim.x) / 2;
    const int warp = __shfl_sync(0xffffffffU, lane / 32, 0);
    sum_staging& staging = scratch.of_warp[4 * consumer + warp];
    ring_place place;
    sums_type sums;
    fetched_type fetched;
    for (std::int32_t turn = 0; turn * workers < works.count(); ++turn) {
      const loss_product_work work = same_for_warp(works.at(turn, worker, workers));
      if (work.panel < 0) {
        continue;
      }
      const std::int32_t row = work.panel * tile + (own * 2 + consumer) * box + warp * 16;
      const std::int32_t channel = work.channel_tile * tile;
      if (!work.is_hidden) {
        if (work.panel * tile >= range.width()) {
          continue;  // no entry is alive there
        }
        multiply_tile<across>(scratch, work, consumer, place, sums, [] {});
        to_classifier(range, sums, row, channel, staging);
      } else if (work.count > 0 || range.is_first() || range.is_last()) {
        multiply_tile<along>(scratch, work, consumer, place, sums,
                             [&] { to_hidden.fetch(range, tokens.size(), row, channel, fetched); });
        to_hidden(range, tokens, sums, row, channel, fetched, staging);
      }
    }
  }

  /// What all lanes have read alike, so that the compiler knows it, too: else it lets multiplications wait for each
  /// other.
  __device__ __forceinline__ static loss_product_work same_for_warp(loss_product_work work) {
    constexpr unsigned all = 0xffffffffU;
    work.is_hidden = __shfl_sync(all, work.is_hidden ? 1 : 0, 0) != 0;
    work.panel = __shfl_sync(all, work.panel, 0);
    work.count = __shfl_sync(all, work.count, 0);
    work.is_unclean = __shfl_sync(all, work.is_unclean ? 1 : 0, 0) != 0;
    return work;
  }

  /// Order: of G's elements, as seen from the depth. Calls `before_end` while there is still something to multiply.
  template <operand_order Order, class BeforeEnd>
  __device__ __forceinline__ void multiply_tile(scratch_type& scratch, loss_product_work const& work, int consumer,
                                                ring_place& place, sums_type& sums,
                                                BeforeEnd const& before_end) const {
    constexpr std::int32_t pieces_at_end = 2;  // their multiplications take longer than a read from memory
    const std::int32_t pieces = 2 * work.count;
    if (pieces <= pieces_at_end) {
      before_end();
    }
    if (pieces == 0) {
#pragma unroll
      for (float& sum : sums) {
        sum = 0.0F;
      }
      return;
    }
    pin_registers(sums);
    int before = place.stage;
    multiply_piece<Order>(scratch, work, 0, consumer, place, sums);
    for (std::int32_t k = 1; k < pieces; ++k) {
      if (k + pieces_at_end == pieces) {
        before_end();
      }
      const int stage = place.stage;
      multiply_piece<Order>(scratch, work, k, consumer, place, sums);
      await_multiply<1>();
      release(scratch, before);
      before = stage;
    }
    await_multiply<0>(sums);
    release(scratch, before);
  }

  /// Starts to multiply piece number `k` of a tile and moves on.
  template <operand_order Order>
  __device__ __forceinline__ void multiply_piece(scratch_type& scratch, loss_product_work const& work, std::int32_t k,
                                                 int consumer, ring_place& place, sums_type& sums) const {
    using mma = warpgroup_mma<T, 256, Order, operand_order::across_depth>;
    constexpr int rows_of_depth = 16 * 128;  // bytes: a multiplication takes 16 rows of a box
    const int stage = place.stage;
    scratch.full[stage].wait(place.phase);
    if (Order == across && work.is_unclean && loss_list_entry::is_unclean(work.list[k / 2])) {
      clear_unlabelled_rows(scratch, stage, loss_list_entry::block(work.list[k / 2]) * 2 + k % 2);
    }
    begin_multiply();
    const std::uint32_t a_address = detail::plain_shared_address(scratch.a[stage][consumer]);
    const std::uint32_t b_address = detail::plain_shared_address(scratch.b[stage][0]);
    const matrix_descriptor a = Order == along ? matrix_descriptor::rows_of_128_bytes(a_address)
                                               : matrix_descriptor::with_strides(a_address, box_bytes, 1024);
    const matrix_descriptor b = matrix_descriptor::with_strides(b_address, box_bytes, 1024);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      mma::multiply(sums, a.further(step * (Order == along ? 32 : rows_of_depth)), b.further(step * rows_of_depth),
                    k != 0 || step != 0);
    }
    commit_multiply();
    place.advance();
  }

  /// Tokens without a label have zeros in G, which cannot undo a NaN or an infinity among their hidden states.
  __device__ __forceinline__ void clear_unlabelled_rows(scratch_type& scratch, int stage, std::int32_t piece) const {
    constexpr int consumers = shape::warpgroup * shape::consumers;
    const int thread = static_cast<int>(threadIdx.x) - shape::warpgroup;
    const int row = thread / 4;
    const std::int64_t token = std::int64_t{piece} * box + row;
    sync_named(1, consumers);
    if (token < tokens.size() && tokens[token].label < 0) {
      auto* const words = reinterpret_cast<uint4*>(scratch.b[stage][thread % 4] + row * 128);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        words[i] = uint4{0, 0, 0, 0};
      }
    }
    fence_async_proxy();
    sync_named(1, consumers);
  }

  __device__ __forceinline__ static void release(scratch_type& scratch, int stage) {
    const unsigned lane = threadIdx.x % 32;
    if (lane < 2) {
      scratch.empty[stage].arrive_at(lane);
    }
  }
};

}  // namespace v0
}  // namespace tessera
