// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `line_products`: terms that lie on a line, those of a LinearBias, as products of matrices, at which
/// warpgroup_attention's sums of products of codes begin.
///
/// A sum of products of codes is in units of the scale of its query times that of its key. In these units the term of
/// key j of a tile is slope / (scale of the query * scale of the key) times j - 64, beside what all keys of a row have
/// in common, which the softmax adds. The four groups of keys that share a scale are the columns of the four lanes that
/// have a row's sums, and depths 2 t and 2 t + 1 of a left operand in registers are those of the same lanes. So each
/// lane gives its own quotient, the sum of two bfloat16s, to two depths at which the right operand has j - 64 for keys
/// of its group and 0 for others: the right operand never changes, and no lane needs another lane's.
///
///     depth                   2 t          2 t + 1      8      9 to 15
///     row, in lane t          u            l            base   base in odd ones, else 0
///     key of group t          j - 64       j - 64       0      1 at 9, else 0
///     key of another group    0            0            0      1 at 9, else 0
///
/// u is the quotient rounded to bfloat16, l the rest. Sums of these products are floats from 2^23 to 2^24, which are
/// integers, with base in the middle, as those of correction_products.cuh.
///
/// Error, in units: 2^-17 of the term's distance from the tile's middle, which is below `widest`, and 2 for what tensor
/// cores cut off: 18. Rounding of codes of 128 channels moves scores by 200 (rms). A lane's quotient is taken if
/// `widest` has room for its terms; else all lanes of its warp give 0, so that sums begin at base.
///
/// Without terms, where a policy says so, all lanes give 0 in each tile: sums of codes begin at base and so are bits of
/// floats.
///
/// Cost for a warpgroup and a tile: 64 cycles of the tensor cores, of 528 with 128 channels, and 34 instructions
/// fewer than without terms: 64 that make floats of sums are spared.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/attention/detail/forward_band.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>

namespace tessera {
inline namespace v0 {

/// The right operand of all tiles, in shared memory, and left ones.
struct line_products {
  using mma = warpgroup_mma<bfloat16, attention_tile_keys>;               ///< makes what sums begin at
  static constexpr float base = piecewise_linear_softmax::integer_magic;  ///< 1.5 2^23
  static constexpr std::int32_t middle = attention_tile_keys / 2;         ///< the key of a tile that has the term 0
  static constexpr float widest = 2097000.0F;                             ///< 2^21, less what is rounded

  /// Eight depths of a key.
  using depths = uint4;

  alignas(128) depths right[2][attention_tile_keys];  ///< depths 0 to 7 of the keys, and 8 to 15

  /// Fills the right operand. All threads, before they sync and the tensor cores read it.
  __device__ __forceinline__ void fill(int lane, int lanes) {
    for (int key = lane; key < attention_tile_keys; key += lanes) {
      auto const factor = static_cast<float>(key - middle);
      std::uint32_t const twice = pack_pair<bfloat16>(factor, factor);
      int const group = key / 2 % 4;
      right[0][key] = {group == 0 ? twice : 0, group == 1 ? twice : 0, group == 2 ? twice : 0, group == 3 ? twice : 0};
      right[1][key] = {pack_pair<bfloat16>(0.0F, 1.0F), 0, 0, 0};
    }
    fence_async_proxy();
  }

  /// Whether terms of a lane that has `quotient` for the distance of a key may be what sums begin at.
  [[nodiscard]] __device__ __forceinline__ static bool has_room(float quotient) {
    return fabsf(quotient) * static_cast<float>(middle) < widest;
  }
  /// The lane's part of a left operand, whose two rows share a scale.
  __device__ __forceinline__ static void make_left(float quotient, mma::a_tile& left) {
    float const upper = __uint_as_float(pack_pair<bfloat16>(0.0F, quotient));  // a bfloat16 is a float's upper half
    left[0] = left[1] = pack_pair<bfloat16>(quotient, quotient - upper);
    left[2] = left[3] = pack_pair<bfloat16>(0.0F, base);
  }
  /// The same of all lanes where there are no terms: sums begin at base.
  __device__ __forceinline__ static void make_left_of_base(mma::a_tile& left) {
    left[0] = left[1] = 0;
    left[2] = left[3] = __float_as_uint(base);
  }
  /// Starts the products that sums of integers begin at. Those of codes come behind them, with another fence: a wait in
  /// its place takes 2.6 % of the time. `left` must stay in its registers until they are awaited.
  template <int Count>
  __device__ __forceinline__ static void start(std::int32_t (&sums)[Count], mma::a_tile& left,
                                               matrix_descriptor const& right) {
    pin_registers(left);
    begin_multiply(sums);
    mma::multiply(reinterpret_cast<float(&)[Count]>(sums), left, right, false);
  }
  /// The right operand.
  [[nodiscard]] __device__ __forceinline__ matrix_descriptor right_operand() const {
    return matrix_descriptor::rows_of_16_bytes(detail::plain_shared_address(right[0]), sizeof(right[0]));
  }
};

}  // namespace v0
}  // namespace tessera
