// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention_weights`: a warpgroup's online softmax over tiles of 64 queries x 128 keys, whose scores are sums of
/// 8-bit codes in registers, as warpgroup_mma.cuh lays them out, and whose weights are to be e4m3 operands.
///
/// A lane has scores of two rows that share one scale, of keys that share another (that is what the groups of
/// quantized queries and keys are for), so one factor c makes logits of all its scores s: log2 of a weight is c s.
///
/// Weights of a tile are relative to the largest logit of the row in this tile, not to the largest so far: all tiles
/// use all of e4m3's range, however much larger earlier weights were. So for tile j, with m_j its largest logit and
/// M_j the largest so far,
///
///     r_j = max(m_j, M_j - 64)        P_j = 448 2^(c s - r_j)        O_j = 2^(r_(j-1) - r_j) O_(j-1) + P_j V_j
///
/// where the bound of 64 keeps factors finite. The sum of products P_j V_j begins at zero in each tile, for tensor
/// cores keep but 13 bits of sums of 8-bit floats; O is kept in fp32, and costs one multiply-add for an element.
///
/// Instructions for each score: an addition, which makes a float of it (1.5 2^23 + s has s in its lower bits), half a
/// maximum of three, a multiply-add that also takes the 1.5 2^23 away, an exponential, half a conversion. The rounding
/// of c 1.5 2^23 shifts logits by at most 2^-24 of that, common to the lane's: 1e-4 where the largest logit that
/// codes could make is 256.
#pragma once

#include <cstdint>

#include <tessera/core/math.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/largest_of_three.cuh>
#include <tessera/tile/cuda/warpgroup_mma.cuh>

namespace tessera {
inline namespace v0 {

/// Which keys the lane's rows see, of key k = 8 j + 2 (lane % 4) + i of the tile as 8 j + i: the first row those from
/// `low` to before `high`, the second those from low + 8 to before high + 8; none from `end` on.
struct key_limits {
  std::int32_t low;   ///< the first key that the first row sees
  std::int32_t high;  ///< behind its last key
  std::int32_t end;   ///< behind the last key that there is
};

/// Of rows t / 4 and t / 4 + 8 of a warp.
struct attention_weights {
  static constexpr int registers = 64;                    ///< scores of a lane
  static constexpr float log2_of_top = 8.807354922F;      ///< 448, the largest e4m3
  static constexpr std::int32_t hidden = -4194303;        ///< less than all sums of 256 products of codes, over -2^22
  static constexpr float integer_magic = 12582912.0F;     ///< 1.5 * 2^23
  static constexpr std::int32_t magic_bits = 0x4b400000;  ///< of integer_magic, as an integer

  float largest[2] = {-infinity, -infinity};    ///< M
  float reference[2] = {-infinity, -infinity};  ///< r

  /// Scores become the bits of weights. `factor`: what the sums of earlier tiles are to be multiplied by.
  template <bool Masked>
  __device__ __forceinline__ void take(std::int32_t (&scores)[registers], float scale, key_limits const& limits,
                                       float (&factor)[2]) {
    if constexpr (Masked) {
      hide(scores, limits);
    }
    float addend[2];
    refer<Masked>(scores, scale, addend, factor);
    exponentiate<Masked>(scores, scale, addend);
  }

  /// Weights as the left operand of 64 x 32 codes, four registers for each 32 keys, whose order is that of quantized
  /// values: in each 16 keys 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 are neighbours.
  __device__ __forceinline__ static void pack(std::int32_t const (&weights)[registers],
                                              std::uint32_t (&packed)[registers / 16][4]) {
#pragma unroll
    for (int i = 0; i < registers / 16; ++i) {
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        int const at = 16 * i + 8 * (word / 2) + 2 * (word % 2);
        packed[i][word] = pack_four_e4m3(__int_as_float(weights[at]), __int_as_float(weights[at + 1]),
                                         __int_as_float(weights[at + 4]), __int_as_float(weights[at + 5]));
      }
    }
  }

 private:
  __device__ __forceinline__ static void hide(std::int32_t (&scores)[registers], key_limits const& limits) {
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      scores[i] = i / 4 * 8 + i % 2 < limits.end ? scores[i] : hidden;
    }
    pin_registers(scores);  // one after the other, for want of registers
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      std::int32_t const key = i / 4 * 8 + i % 2 - i / 2 % 2 * 8;
      scores[i] = key >= limits.low && key < limits.high ? scores[i] : hidden;
    }
  }

  /// Four chains of 16 scores, so that they wait for each other less.
  __device__ __forceinline__ static std::int32_t largest_of_row(std::int32_t const (&scores)[registers], int row) {
    int const first = 2 * row;
    std::int32_t even = scores[first] > scores[first + 1] ? scores[first] : scores[first + 1];
    std::int32_t odd = scores[first + 4] > scores[first + 5] ? scores[first + 4] : scores[first + 5];
#pragma unroll
    for (int i = 8; i < registers; i += 8) {
      even = largest_of_three(even, scores[first + i], scores[first + i + 1]);
      odd = largest_of_three(odd, scores[first + i + 4], scores[first + i + 5]);
    }
    return even > odd ? even : odd;
  }

  /// The tile's reference. Exponents will be c (s + 1.5 2^23) + addend.
  template <bool Masked>
  __device__ __forceinline__ void refer(std::int32_t const (&scores)[registers], float scale, float (&addend)[2],
                                        float (&factor)[2]) {
    constexpr float most_below = 64.0F;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      std::int32_t const most = largest_of_row(scores, row);
      float here = scale * (__int_as_float(most + magic_bits) - integer_magic);
      if constexpr (Masked) {
        here = most == hidden ? -infinity : here;
      }
      here = fmaxf(here, __shfl_xor_sync(0xffffffffU, here, 1));
      here = fmaxf(here, __shfl_xor_sync(0xffffffffU, here, 2));
      largest[row] = fmaxf(largest[row], here);
      float next = fmaxf(here, largest[row] - most_below);
      if constexpr (Masked) {
        next = here == -infinity ? reference[row] : next;  // a row that sees nothing here stays as it is
        factor[row] = here == -infinity ? 1.0F : fast_exp2(reference[row] - next);
      } else {
        factor[row] = fast_exp2(reference[row] - next);
      }
      reference[row] = next;
      addend[row] = __fmaf_rn(scale, -integer_magic, log2_of_top - next);
    }
  }

  template <bool Masked>
  __device__ __forceinline__ static void exponentiate(std::int32_t (&scores)[registers], float scale,
                                                      float const (&addend)[2]) {
#pragma unroll
    for (int i = 0; i < registers; ++i) {
      float const score = __int_as_float(scores[i] + magic_bits);
      bool const is_hidden = Masked && scores[i] == hidden;
      float const weight = fast_exp2(__fmaf_rn(score, scale, addend[i / 2 % 2]));
      scores[i] = is_hidden ? 0 : __float_as_int(weight);
    }
  }
};

}  // namespace v0
}  // namespace tessera
