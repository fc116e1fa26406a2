// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `loss_product_stages`: how sm_90a multiplies the gradient by the logits, G, into those of hidden states (G C) and of
/// the classifier (G^T E), a pipeline stage of 64 of the depth at a time. A cluster of two thread blocks has a tile of
/// 256 x 192 or 256 x 256; each block loads 128 rows of G, and every other half of the boxes of C or E for both.
#pragma once

#include <cstdint>

#include <tessera/program/gemm/gemm_pipeline.cuh>
#include <tessera/program/loss/token_factors.hpp>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

template <class T, int Columns>
struct loss_product_stages {
  using shape = warpgroup_gemm_shape;
  static constexpr int box = 64;                      ///< columns of all boxes, and rows of boxes of G
  static constexpr int shared_rows = 32;              ///< rows of a box that is loaded for both blocks
  static constexpr int box_bytes = box * box * 2;     ///< bytes of an operand's box in shared memory
  static constexpr int rows = 256;                    ///< rows of a cluster's tile
  static constexpr int channels = Columns;            ///< channels of a tile
  static constexpr int halves = 2;                    ///< halves of a block's tile, each with instructions of its own
  static constexpr int boxes = channels / box;        ///< boxes across a tile
  static constexpr int a_bytes = halves * box_bytes;  ///< bytes of a stage of G
  static constexpr int b_bytes = boxes * box_bytes;   ///< bytes of a stage of the other operand
  /// The sums of a warpgroup that has so many halves of a block's tile.
  template <int Halves>
  using sums_of = float[Halves][channels / 2];
  using sums_type = sums_of<halves>;                                    ///< those of a whole tile
  static constexpr operand_order along = operand_order::along_depth;    ///< of G in the product for hidden states
  static constexpr operand_order across = operand_order::across_depth;  ///< of G in that for the classifier

  /// The place of a stage of the depth.
  struct place {
    std::int32_t row;       ///< the block's first row of the tile
    std::int32_t channel;   ///< the tile's first channel
    std::int32_t k;         ///< the first of the depth in G
    std::int32_t k_of_b;    ///< the same in the other operand
    std::int32_t of_block;  ///< the block's number in its cluster
  };

  /// Loads a stage of G, to `a`, and of the other operand, to `b`.
  template <bool IsHidden>
  __device__ __forceinline__ static void load(unsigned char* a, unsigned char* b, tensor_map const& gradient,
                                              tensor_map const& other, shared_barrier& full, place const& at) {
    constexpr std::uint16_t everyone = 3;
    constexpr int shared_bytes = shared_rows * 128;
    full.arrive_and_expect(a_bytes + b_bytes);
#pragma unroll
    for (int i = 0; i < halves; ++i) {
      std::int32_t const row = at.row + i * box;
      load_box(a + i * box_bytes, gradient, full, IsHidden ? box_coordinate{at.k, row} : box_coordinate{row, at.k});
    }
#pragma unroll
    for (int i = 0; i < boxes; ++i) {
      load_box_for_cluster(b + i * box_bytes + at.of_block * shared_bytes, other, full,
                           {at.channel + i * box, at.k_of_b + at.of_block * shared_rows}, everyone);
    }
  }

  /// Starts to multiply the halves of a block's tile from `first_half` on in a stage, of stages that lie one after the
  /// other. Order: how G's elements lie, as seen from the depth. Without `add` the old sums count as zero.
  template <operand_order Order, int Halves>
  __device__ __forceinline__ static void multiply(void const* first_a, void const* first_b, int stage,
                                                  float (&sums)[Halves][channels / 2], bool add, int first_half = 0) {
    using mma = warpgroup_mma<T, channels, Order, operand_order::across_depth>;
    constexpr int rows_of_depth = 16 * 128;  // bytes: a multiplication takes 16 rows of a box
    std::uint32_t const a_address =
        detail::plain_shared_address(first_a) + static_cast<std::uint32_t>(stage * a_bytes + first_half * box_bytes);
    std::uint32_t const b_address = detail::plain_shared_address(first_b) + static_cast<std::uint32_t>(stage * b_bytes);
    matrix_descriptor const a = Order == along ? matrix_descriptor::rows_of_128_bytes(a_address)
                                               : matrix_descriptor::with_strides(a_address, box_bytes, 1024);
    matrix_descriptor const b = matrix_descriptor::with_strides(b_address, box_bytes, 1024);
    begin_multiply();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int half = 0; half < Halves; ++half) {
        mma::multiply(sums[half], a.further(half * box_bytes + step * (Order == along ? 32 : rows_of_depth)),
                      b.further(step * rows_of_depth), add || step != 0);
      }
    }
    commit_multiply();
  }

  /// Clears rows of E in a stage `b` that belong to tokens without a label: their zeros in G cannot undo a NaN or an
  /// infinity among the hidden states. The warpgroup whose turn it is runs it.
  __device__ __forceinline__ static void clear_unlabelled(unsigned char* b, std::int32_t k_tile,
                                                          array_view<loss_token_factors const> const& tokens) {
    int const thread = static_cast<int>(thread_index()) % shape::warpgroup;
    int const barrier = static_cast<int>(thread_index()) / shape::warpgroup;
    int const row = thread / 2;
    std::int64_t const token = std::int64_t{k_tile} * box + row;
    if (token < tokens.size() && tokens[token].label < 0) {
#pragma unroll
      for (int i = 0; i < boxes; ++i) {
        auto* const words = reinterpret_cast<uint4*>(b + i * box_bytes + row * 128 + thread % 2 * 64);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          words[k] = uint4{0, 0, 0, 0};
        }
      }
    }
    fence_async_proxy();
    sync_named(barrier, shape::warpgroup);
  }

  /// Keeps the compiler from moving reads and writes of sums across this line.
  template <int Halves>
  __device__ __forceinline__ static void pin(float (&sums)[Halves][channels / 2]) {
#pragma unroll
    for (int half = 0; half < Halves; ++half) {
      pin_registers(sums[half]);
    }
  }
};

}  // namespace v0
}  // namespace tessera
