// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Joins weights of which 0, 1, 3 or 7 mantissa bits were kept, as join_rows (which see) joins whole ones.
///
/// Sign and kept mantissa are 1, 2, 4 or 8 bits of one plane. Shifted copies of a word of the plane have a weight's
/// bits at the top of a byte, so that one selection of bytes places those of a pair; what lies below them in the byte
/// is masked where the exponent is added. Instructions a weight, without the coder's: bf16 2, fp16 3, fp32 3, and for
/// the shifted copies 1 / 8 (3 bits) to 7 / 32 (none).
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/entropy/bit_planes.hpp>
#include <tessera/entropy/exponent_split.hpp>
#include <tessera/program/weights/detail/join_rows.cuh>
#include <tessera/tile/cuda/bytes.cuh>

namespace tessera {
inline namespace v0 {

/// Rows of weights of type T that kept `Kept` mantissa bits.
template <class T, int Kept>
struct join_kept_rows {
  static constexpr int bits = 1 + Kept;  ///< of sign and mantissa
  static constexpr int rows = 4;
  static constexpr int weights = 16 / static_cast<int>(sizeof(T));  ///< of a lane in a row
  static constexpr int pairs = weights / 2;
  /// Where bits of the weights of a block lie.
  static constexpr bit_plane plane{bits, weights};
  /// Words of a unit of the plane.
  static constexpr int unit_words = plane.unit_bytes() / 4;
  /// Rows of weights whose bits a unit holds.
  static constexpr int rows_per_unit = plane.rows_per_unit();
  /// Rows whose bits are loaded at a time.
  static constexpr int loaded_rows = max(rows, rows_per_unit);
  static_assert(bits == 1 || bits == 2 || bits == 4 || bits == 8, "tessera: sign and mantissa are one plane");
  static_assert(Kept < scalar_traits<T>::mantissa_bits, "tessera: join_rows joins whole weights");

  std::uint32_t residuals[loaded_rows / rows_per_unit * unit_words];  ///< signs and mantissas

  template <bool Checked>
  __device__ __forceinline__ void load(std::uint8_t const* planes, int, int row, int last_row, int lane) {
    load_plane<Checked, unit_words, rows_per_unit, loaded_rows>(planes, row, last_row, lane, residuals);
    if constexpr (rows_per_unit > rows) {
      residuals[0] >>= row % rows_per_unit * weights * bits;
    }
  }

  template <bool Contiguous>
  __device__ __forceinline__ uint4 row(int which, std::uint32_t const (&codes)[pairs],
                                       window_exponents<Contiguous> window) const {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (std::is_same_v<T, float>) {
        std::uint32_t const exponents = window.shifted(codes[i / 2], 0);
        std::uint32_t const exponent = i % 2 == 0 ? exponents << 23 : (exponents >> 16) << 23;
        words[i] = select_bits(sign | mantissa, top_bytes(which, i), exponent);
      } else {
        std::uint32_t const both = pair_of_bytes(which, 2 * i);
        std::uint32_t const exponents = window.shifted(codes[i], scalar_traits<T>::mantissa_bits);
        if constexpr (std::is_same_v<T, float16>) {
          words[i] = (both & sign) | ((both << 3) & mantissa) | exponents;
        } else {
          words[i] = select_bits(sign | mantissa, both, exponents);
        }
      }
    }
    return {words[0], words[1], words[2], words[3]};
  }

 private:
  static constexpr std::uint32_t copies = sizeof(T) == 2 ? 0x00010001U : 1U;
  static constexpr std::uint32_t sign = copies << (8 * sizeof(T) - 1);
  static constexpr std::uint32_t mantissa = ((1U << Kept) - 1) * copies << (scalar_traits<T>::mantissa_bits - Kept);

  /// Where a weight's bits begin in the units of the rows.
  __device__ __forceinline__ static constexpr int bit_of(int which, int weight) {
    return which / rows_per_unit * unit_words * 32 + (which % rows_per_unit * weights + weight) * bits;
  }
  /// A word with a weight's bits at the top of one of its bytes, byte_of().
  __device__ __forceinline__ std::uint32_t shifted(int which, int weight) const {
    int const bit = bit_of(which, weight);
    return residuals[bit / 32] << (8 - bits - bit % 8);
  }
  __device__ __forceinline__ static constexpr std::uint32_t byte_of(int which, int weight) {
    return static_cast<std::uint32_t>(bit_of(which, weight) % 32 / 8);
  }
  /// The byte of one weight in both bytes of the low half, that of the next weight in both bytes of the high half.
  __device__ __forceinline__ std::uint32_t pair_of_bytes(int which, int weight) const {
    std::uint32_t const selector = byte_of(which, weight) * 0x11U + (4 + byte_of(which, weight + 1)) * 0x1100U;
    return pick_bytes(shifted(which, weight), shifted(which, weight + 1), selector);
  }
  /// The byte of one weight in both bytes of the high half.
  __device__ __forceinline__ std::uint32_t top_bytes(int which, int weight) const {
    return pick_bytes(shifted(which, weight), 0, 0x44U + byte_of(which, weight) * 0x1100U);
  }
};

/// How a warp joins weights of which a keep_mantissa keeps a part, or all.
template <class T, class Mantissa>
using rows_of_kept = typename std::conditional_t<Mantissa::template is_lossless<T>, std::type_identity<join_rows<T>>,
                                                 std::type_identity<join_kept_rows<T, Mantissa::kept_bits>>>::type;

}  // namespace v0
}  // namespace tessera
