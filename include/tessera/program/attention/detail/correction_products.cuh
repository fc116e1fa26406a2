// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `correction_products`: the scores of mean queries as products of matrices, at which warpgroup_attention's sums of
/// products of codes begin.
///
/// A sum of products of codes is in units of the scale of its query times that of its key. So the score r of a mean
/// query, less the middle m of its tile, is a product in these units: (r - m) / (scale of the key), which is the same
/// for all rows of a warpgroup, times 1 / (scale of the row). Each factor is the sum of two bfloat16s, so that one
/// instruction of the tensor cores, 64 rows x 128 keys at a depth of 16, makes what all sums of a tile begin at. Depths
/// of its operands, of which a block of queries has two means at the most:
///
///     depth               0      1      2      3      4      5 to 7   8 to 15
///     key                 u_0    l_0    u_1    l_1    1      0        as 0 to 7
///     row with mean 0     u      u      0      0      base   0        l  l  0  0  0  0 0 0
///     row with mean 1     0      0      u      u      base   0        0  0  l  l  0  0 0 0
///
/// u is a factor rounded to bfloat16, l the rest. Sums of these products are floats from 2^23 to 2^24, which are
/// integers: base, which has a 1 as the other factor, is in the middle. The products of codes are added to their bits,
/// as integers, so that a score is a float that needs no conversion.
///
/// Error, in units: 2^-16 of the score's distance from the middle, since either factor is within 2^-17, and 2 for what
/// tensor cores cut off. Scores at a distance of `widest` units, 200 in base 2 where 128 channels of queries and keys
/// are normal, are so within 34 units; rounding of codes moves their scores by 200 (rms). Where a tile reaches further,
/// sums begin at zero, and scores are added as fp32: so it is where scores, or units, are infinite or NaN, too.
///
/// Cost for a warpgroup and a tile: 64 cycles of the tensor cores, of 528 with 128 channels, and 12 instructions; 64
/// instructions that make floats of sums are spared. The right operands are made by two warps of the producer's
/// warpgroup, one for each mean, which read what TMA has loaded: 50 instructions a tile.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/attention/detail/forward_band.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/message_ring.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// Operands of a thread block's warpgroups and stages, in shared memory.
template <int Warpgroups, int Stages>
struct correction_products {
  static constexpr int converters = 2;  ///< warps that make right operands, one for each mean of a block
  static constexpr int rows = 64;       ///< of a warpgroup
  static constexpr float base = piecewise_linear_softmax::integer_magic;  ///< 1.5 2^23
  static constexpr float widest = 2097000.0F;                             ///< 2^21, less what is rounded
  static constexpr int first_barrier = 1;                                 ///< of the named barriers of warpgroups
  static constexpr int warpgroup_threads = 128;                           ///< threads of a warpgroup

  /// What a warpgroup needs of a tile.
  struct tile_limits {
    float middle;  ///< the score, in base 2, that sums of `base` stand for
    float reach;   ///< the greatest distance from it, over the scale of a key; infinite if it is not small
  };
  /// Eight depths of a row or a key.
  using depths = uint4;

  alignas(128) depths right[Stages][attention_tile_keys];  ///< keys of stages: depths 0 to 7
  alignas(128) depths left[Warpgroups][2][rows];           ///< rows of warpgroups: depths 0 to 7, and 8 to 15
  tile_limits limits[Stages][Warpgroups];                  ///< of each warpgroup's mean
  float units[4 * Warpgroups];                             ///< for each warp: 1 / the least scale of its warpgroup
  shared_message<std::int32_t> loads[Stages];  ///< twice the bits of warpgroups, and the parity of the first
                                               ///< block; negative: there are no more stages
  shared_barrier loaded[Stages];               ///< completes when a stage's scores and scales are there

  /// One thread, before fence_barrier_init().
  __device__ __forceinline__ void init() {
    for (shared_barrier& each : loaded) {
      each.init(1);
    }
  }
  /// Fills the depths that never change, and zeros. All threads, before they sync.
  __device__ __forceinline__ void fill(int lane, int lanes) {
    for (int i = lane; i < Stages * attention_tile_keys; i += lanes) {
      right[i / attention_tile_keys][i % attention_tile_keys] = {0, 0, __float_as_uint(1.0F) >> 16, 0};
    }
  }

  /// Says that scores of some warpgroups, each of which has a bit, are being loaded for a stage, by a thread block
  /// whose first block of 64 queries has a number. Returns the barrier at which they and the keys' scales arrive. The
  /// producer's thread.
  __device__ __forceinline__ shared_barrier& load(int stage, unsigned warpgroups, std::int32_t first_block) {
    loads[stage].write(static_cast<std::int32_t>(warpgroups << 1) | (first_block & 1));
    return loaded[stage];
  }
  /// Says that nothing is loaded for a stage. The producer's thread.
  __device__ __forceinline__ void pass_over(int stage) { load(stage, 0, 0).arrive(); }
  /// Says that there are no more stages. The producer's thread.
  __device__ __forceinline__ void end(int stage) {
    loads[stage].write(-1);
    loaded[stage].arrive();
  }

  /// Makes right operands of mean number `mean` of each stage, until there are no more. One warp. `terms`, `scales`:
  /// what stages have. `ring`: that of keys, at whose full barriers all lanes arrive.
  template <class Staged>
  __device__ __forceinline__ void convert(int mean, Staged const* terms, float const (*scales)[lane_scales],
                                          stage_ring<Stages>& ring) {
    pipeline_state<Stages> state;
    std::int32_t what = 0;
    auto const goes_on = [&, this] {
      loaded[state.stage].wait(state.phase);
      what = loads[state.stage].read();
      return what >= 0;
    };
    if (!goes_on()) {
      return;
    }
    for (read_step<Stages> const at : pipelined(late_reader(state), steps_while(goes_on))) {
      unsigned const own = static_cast<unsigned>(what) >> 1U & (0b11U << 2 * mean >> (what & 1));
      if (own != 0) {
        convert_tile(mean, own, terms[at.stage], scales[at.stage], at.stage);
      }
      fence_async_proxy();
      ring.full[at.stage].arrive();
    }
  }

  /// Makes the left operand of a warp's 16 rows, and syncs its warpgroup. `scales`: those of pairs of rows of the
  /// thread block; `block`: the warpgroup's number among the blocks of 64 queries of its head; `exist`: its rows that
  /// exist. Nobody multiplies by the operand before it.
  __device__ __forceinline__ void set_rows(int warp, float const* scales, std::int32_t block, std::int32_t exist) {
    auto const lane = static_cast<int>(thread_index_here() % 32);
    int const warpgroup = warp / 4;
    float const of_pair =
        lane / 8 * 16 + lane % 8 < exist ? fast_reciprocal(scales[warpgroup * rows / 2 + lane]) : 0.0F;
    std::uint32_t const most = largest_of_warp(__float_as_uint(of_pair));  // the order of bits is that of floats
    int const row = warp % 4 * 16 + lane / 2;
    float const unit = row < exist ? fast_reciprocal(scales[warp * 8 + lane / 2 % 8]) : 0.0F;
    float2 const parts = parts_of(unit);
    std::uint32_t const twice =
        lane % 2 == 0 ? pack_pair<bfloat16>(parts.x, parts.x) : pack_pair<bfloat16>(parts.y, parts.y);
    bool const is_second = block / 2 > (block - warpgroup) / 2;
    sync_named(first_barrier + warpgroup, warpgroup_threads);  // no warp multiplies by the operand before any more
    left[warpgroup][lane % 2][row] = {is_second ? 0 : twice, is_second ? twice : 0,
                                      lane % 2 == 0 ? __float_as_uint(base) >> 16 : 0, 0};
    units[warp] = __uint_as_float(most);
    fence_async_proxy();
    sync_named(first_barrier + warpgroup, warpgroup_threads);
  }

  /// The left operand of a warpgroup.
  [[nodiscard]] __device__ __forceinline__ matrix_descriptor left_of(int warpgroup) const {
    return matrix_descriptor::rows_of_16_bytes(detail::plain_shared_address(left[warpgroup]), sizeof(left[0][0]));
  }
  /// The right operand of a stage.
  [[nodiscard]] __device__ __forceinline__ matrix_descriptor right_of(int stage) const {
    return matrix_descriptor::rows_of_16_bytes(detail::plain_shared_address(right[stage]), 0);
  }

 private:
  /// A factor rounded to bfloat16, and the rest.
  [[nodiscard]] __device__ __forceinline__ static float2 parts_of(float factor) {
    float const upper = unpack_pair<bfloat16>(pack_pair<bfloat16>(factor, 0.0F)).x;
    return {upper, factor - upper};
  }

  template <class Staged>
  __device__ __forceinline__ void convert_tile(int mean, unsigned own, Staged const& terms, float const* scales,
                                               int stage) {
    constexpr float most_reach = 1e30F;  // its products with rows of other means are finite
    auto const lane = static_cast<int>(thread_index_here() % 32);
    auto const& row = terms.corrections[__ffs(static_cast<int>(own)) - 1];
    float4 const four = *reinterpret_cast<float4 const*>(row.values + 4 * lane);
    float const middle = __fmaf_rn(0.5F, row.range.spread, row.range.least);
    float const unit = fast_reciprocal(scales[lane % 4]);
    float const factors[4] = {(four.x - middle) * unit, (four.y - middle) * unit, (four.z - middle) * unit,
                              (four.w - middle) * unit};
    std::uint32_t most = 0;
#pragma unroll
    for (float const factor : factors) {
      most = max(most, __float_as_uint(fabsf(factor)));  // NaN is the greatest
    }
    float const reach = __uint_as_float(largest_of_warp(most));
    bool const is_small = reach < most_reach;
    // The lane has keys 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of each 16, t being lane % 4, which share a scale.
    auto* const to = reinterpret_cast<std::uint32_t*>(right[stage] + lane / 4 * 16 + lane % 4 * 2) + mean;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float2 const parts = parts_of(is_small ? factors[i] : 0.0F);
      to[(i / 2 * 8 + i % 2) * 4] = pack_pair<bfloat16>(parts.x, parts.y);
    }
    if (lane < Warpgroups && (own >> lane & 1U) != 0) {
      limits[stage][lane] = {middle, is_small ? reach : infinity};
    }
  }
};

}  // namespace v0
}  // namespace tessera
