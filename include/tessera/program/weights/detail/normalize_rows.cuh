// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The normalizers of a block of weights in the CUDA decoder: joined rows are multiplied by 1 + normalizer / 256, by
/// one fused multiply-add for each register.
///
/// keep_mantissa::restore_normalized is the law: one rounding to nearest even, and finite values stay finite. The
/// multiply-add gives its bits where no exponent is so high that a product could become infinite, and none is that of
/// an infinity or a NaN, whose bits it would change. Windows with such exponents, which no usual weights have, are for
/// normalize_in_place().
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/entropy/exponent_split.hpp>
#include <tessera/entropy/exponent_window.hpp>
#include <tessera/quantize/keep_mantissa.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/pairs.cuh>

namespace tessera {
inline namespace v0 {

/// A block without normalizers.
struct no_normalizers {
  /// There are none.
  static constexpr std::uint8_t const* first = nullptr;
  /// Nor blocks of them.
  static constexpr int log2_block = 0;
};
/// The normalizers of a block, or none.
struct block_normalizers {
  std::uint8_t const* first;  ///< null: none
  int log2_block;             ///< weights of a normalizer, as a power of two
};

/// Whether rows of normalized weights can be multiplied as they are: the largest product of an exponent e and a
/// normalizer rounds to at most 2^(e + 2).
template <class T>
TESSERA_FN constexpr bool has_small_products(exponent_window window) {
  constexpr std::uint32_t largest = exponent_split<T>::largest_exponent - 3;
  return window.base + exponent_window::neighbours - 1 <= largest && window.extra + 1U <= largest;
}

/// Rows of a block without normalizers.
template <class T, class Rows, class Normalizers>
struct normalized_rows : Rows {
  static_assert(std::is_same_v<Normalizers, no_normalizers>);

  /// Loads nothing.
  __device__ __forceinline__ void load_normalizers(no_normalizers, int, int) {}
  /// Values are what they are without normalizers.
  __device__ __forceinline__ uint4 normalized(int, uint4 values) const { return values; }
};
/// Rows of a block with normalizers.
template <class T, class Rows>
struct normalized_rows<T, Rows, block_normalizers> : Rows {
  static constexpr int weights = 16 / static_cast<int>(sizeof(T));  ///< of a lane in a row
  std::uint32_t of_row[Rows::rows];                                 ///< the lane's normalizer of each row

  /// Begins to load the normalizers from `row` on. At least 32 weights share one, so that a lane has one in a row.
  __device__ __forceinline__ void load_normalizers(block_normalizers from, int row, int lane) {
#pragma unroll
    for (int i = 0; i < Rows::rows; ++i) {
      of_row[i] = __ldg(from.first + (((row + i) * 32 + lane) * weights >> from.log2_block));
    }
  }
  /// The row number `which` times its factor.
  __device__ __forceinline__ uint4 normalized(int which, uint4 values) const {
    float const fraction = static_cast<float>(of_row[which]) * (1.0F / 256.0F);
    std::uint32_t fractions = __float_as_uint(fraction);
    if constexpr (sizeof(T) == 2) {
      fractions = pack_pair<T>(fraction, fraction);
    }
    return {enlarge_pair<T>(values.x, fractions), enlarge_pair<T>(values.y, fractions),
            enlarge_pair<T>(values.z, fractions), enlarge_pair<T>(values.w, fractions)};
  }
};

/// Multiplies weights that a warp has written as they were kept.
template <class T, class Mantissa>
__device__ __forceinline__ void normalize_in_place(T* weights, int count, block_normalizers from) {
  using split = exponent_split<T>;
  using bits_type = typename scalar_traits<T>::bits_type;
  constexpr int dropped = split::mantissa_bits - Mantissa::kept_bits;
#pragma unroll 1
  for (int i = cuda_warp{}.lane; i < count; i += 32) {
    std::uint32_t const bits = to_bits(weights[i]);
    std::uint32_t const residual = split::residual(bits) >> dropped;
    kept_value const kept{split::exponent(bits), residual, false};
    std::uint32_t const normalizer = from.first[i >> from.log2_block];
    weights[i] = from_bits<T>(static_cast<bits_type>(Mantissa::template restore_normalized<T>(kept, normalizer)));
  }
}

}  // namespace v0
}  // namespace tessera
