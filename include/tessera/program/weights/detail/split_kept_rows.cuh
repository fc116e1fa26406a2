// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Rounds weights in registers to 0, 1, 3 or 7 mantissa bits and splits them into exponents and bit planes, 16 bytes a
/// lane at a time: what split_rows (which see) does for whole weights, and the inverse of join_kept_rows.cuh.
///
/// keep_mantissa::quantize is the law. Numbers of 16 bits are rounded two at a time, by an addition to their
/// magnitudes, whose carries run into the exponents. Weights whose magnitudes are then those of infinities or NaNs are
/// rounded once more, by keep_mantissa itself, and so are weights with normalizers of fp32, or rounded by chance.
/// Instructions a weight beside those for whole ones: about 1 (bf16, 3 bits), with normalizers 14.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/entropy/bit_planes.hpp>
#include <tessera/entropy/exponent_split.hpp>
#include <tessera/program/weights/block.hpp>
#include <tessera/program/weights/detail/split_rows.cuh>
#include <tessera/quantize/keep_mantissa.hpp>
#include <tessera/tile/cuda/bytes.cuh>

namespace tessera {
inline namespace v0 {

/// Splits rows of weights of type T that keep what Mantissa keeps, from the last row of a block to the first.
template <class T, class Mantissa>
struct split_kept_rows {
  using split = exponent_split<T>;                                  ///< what a weight is split into
  static constexpr int kept = Mantissa::kept_bits;                  ///< bits of a mantissa that are kept
  static constexpr int bits = 1 + kept;                             ///< of sign and mantissa
  static constexpr int dropped = split::mantissa_bits - kept;       ///< bits that are rounded away
  static constexpr int rows = 2;                                    ///< rows at a time
  static constexpr int weights = 16 / static_cast<int>(sizeof(T));  ///< of a lane in a row
  static constexpr int pairs = weights / 2;
  /// Where bits of the weights of a block lie.
  static constexpr bit_plane plane{bits, weights};
  static constexpr int unit_words = plane.unit_bytes() / 4;     ///< words of a unit of the plane
  static constexpr int rows_per_unit = plane.rows_per_unit();   ///< rows whose bits a unit holds
  static constexpr int stored_rows = max(rows, rows_per_unit);  ///< rows whose bits are stored at a time
  /// Bits of a row in a unit that has more than one.
  static constexpr int row_bits = weights * bits;
  static_assert(bits == 1 || bits == 2 || bits == 4 || bits == 8, "tessera: sign and mantissa are one plane");

  std::uint32_t residuals[stored_rows / rows_per_unit * unit_words] = {};  ///< signs and mantissas

  /// Splits row `number` of the block, the one at `which` of those at a time. A pair's exponents come as
  /// `first | second << 16`, with 256 added to that of a NaN that keeps no mantissa bit.
  __device__ __forceinline__ void row(int which, int number, int lane, std::uint32_t const (&words)[4],
                                      weight_block<T> const& block, std::uint32_t (&exponents)[pairs]) {
    int const position = (number * 32 + lane) * weights;
    std::uint32_t rounded[4];
    std::uint32_t special = 0;
    bool const is_normalized = block.normalizers != nullptr;
    if (has_short_quotients && is_normalized) {
      std::uint32_t const divisor = 256U + normalizer_at(block, position);
      std::uint32_t const reciprocal = ~0U / divisor + 1;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        std::uint32_t const magnitudes = words[i] & ~signs;
        rounded[i] = divide(magnitudes & 0xffffU, divisor, reciprocal) | divide(magnitudes >> 16, divisor, reciprocal)
                                                                             << 16;
        special |= (magnitudes + (top - infinity) * copies) | (rounded[i] + (top - infinity) * copies);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        rounded[i] = round(words[i] & ~signs, block, position + i * per_word);
        special |= rounded[i] + (top - infinity) * copies;
      }
    }
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      if constexpr (per_word == 2) {
        exponents[i] = (rounded[i] >> split::mantissa_bits) & (split::largest_exponent * copies);
      } else {
        exponents[i] = ((rounded[2 * i] >> 23) & 0xffU) | ((rounded[2 * i + 1] >> 7) & 0x00ff0000U);
      }
    }
    if ((special & signs) != 0 || (is_normalized && !has_short_quotients)) {
      keep_exactly(words, block, position, rounded, exponents);
    }
    std::uint32_t packed[unit_words];
    pack(words, rounded, packed);
    if constexpr (rows_per_unit == 1) {
#pragma unroll
      for (int i = 0; i < unit_words; ++i) {
        residuals[which * unit_words + i] = packed[i];
      }
    } else {
      residuals[0] |= packed[0] << (rows_per_unit == rows ? which : number % rows_per_unit) * row_bits;
    }
  }

  /// Stores planes where a unit's first row has come, and begins the next unit.
  __device__ __forceinline__ void store(std::uint8_t* planes, int, int row, int last_row, int lane) {
    if (rows_per_unit <= rows || row % rows_per_unit == 0) {
      store_plane<unit_words, rows_per_unit, stored_rows>(planes, row, last_row, lane, residuals);
#pragma unroll
      for (auto& word : residuals) {
        word = 0;
      }
    }
  }

 private:
  static constexpr int per_word = sizeof(T) == 2 ? 2 : 1;  ///< weights of a word
  static constexpr std::uint32_t copies = per_word == 2 ? 0x00010001U : 1U;
  static constexpr std::uint32_t top = 1U << (8 * sizeof(T) - 1);
  static constexpr std::uint32_t signs = top * copies;
  static constexpr std::uint32_t infinity = split::largest_exponent << split::mantissa_bits;
  static constexpr std::uint32_t mantissa = (1U << kept) - 1;

  /// Whether quotients by normalizers are made here. Stochastic rounding takes more of their bits.
  static constexpr bool has_short_quotients = sizeof(T) == 2 && Mantissa::rounding != mantissa_rounding::stochastic;

  /// Divides a magnitude by divisor / 256 and rounds it, as keep_mantissa::quantize_normalized does; the dropped bits
  /// are meaningless. reciprocal: 2^32 / divisor, rounded up, whose error is too small to change a quotient: dividends
  /// are below 2^20, and divisors below 2^9.
  __device__ __forceinline__ static std::uint32_t divide(std::uint32_t magnitude, std::uint32_t divisor,
                                                         std::uint32_t reciprocal) {
    constexpr std::uint32_t one = 1U << split::mantissa_bits;
    constexpr std::uint32_t half = 1U << (dropped - 1);
    std::uint32_t const exponent = magnitude >> split::mantissa_bits;
    std::uint32_t const significand = exponent > 0 ? (magnitude & (one - 1)) | one : magnitude;
    std::uint32_t const above = exponent > 0 ? exponent : 1;  // what the exponent counts as
    std::uint32_t const twice = __umulhi(significand << 9, reciprocal);
    bool const is_below = twice < 2 * one && above > 1;  // the quotient has the next lower exponent
    std::uint32_t const quotient = is_below ? twice : twice >> 1;
    std::uint32_t const found = quotient < one ? quotient : quotient + (above - (is_below ? 2U : 1U)) * one;
    if constexpr (Mantissa::rounding == mantissa_rounding::half_away) {
      return found + half;
    } else if constexpr (Mantissa::rounding == mantissa_rounding::half_even) {
      bool const is_inexact = twice * divisor != significand << 9 || (!is_below && twice % 2 != 0);
      return found + (half - 1) + (is_inexact ? 1U : (found >> dropped) & 1U);
    } else {
      return found;
    }
  }
  /// A lane has one normalizer in a row, since at least 32 weights share one.
  __device__ __forceinline__ static std::uint32_t normalizer_at(weight_block<T> const& block, int position) {
    return position < block.count ? block.normalizers[position >> block.log2_normalizer_block] : 0U;
  }

  /// Rounds magnitudes; the dropped bits are meaningless.
  __device__ __forceinline__ static std::uint32_t round(std::uint32_t magnitudes, weight_block<T> const& block,
                                                        int position) {
    constexpr std::uint32_t half = 1U << (dropped - 1);
    if constexpr (Mantissa::rounding == mantissa_rounding::half_away) {
      return magnitudes + half * copies;
    } else if constexpr (Mantissa::rounding == mantissa_rounding::half_even) {
      return magnitudes + (half - 1) * copies + ((magnitudes >> dropped) & copies);
    } else if constexpr (Mantissa::rounding == mantissa_rounding::stochastic) {
      std::uint32_t added = random_at(block, position) >> (32 - dropped);
      if constexpr (per_word == 2) {
        added |= random_at(block, position + 1) >> (32 - dropped) << 16;
      }
      return magnitudes + added;
    } else {
      return magnitudes;
    }
  }
  __device__ __forceinline__ static std::uint32_t random_at(weight_block<T> const& block, int position) {
    return weight_block<T>::random_bits(block.seed, block.first + static_cast<std::uint64_t>(position));
  }

  /// Rounds weights by keep_mantissa.
  __device__ __forceinline__ static void keep_exactly(std::uint32_t const (&words)[4], weight_block<T> const& block,
                                                      int position, std::uint32_t (&rounded)[4],
                                                      std::uint32_t (&exponents)[pairs]) {
    int const normalizer = block.normalizers != nullptr ? static_cast<int>(normalizer_at(block, position)) : -1;
#pragma unroll
    for (int i = 0; i < weights; ++i) {
      constexpr int width = 8 * static_cast<int>(sizeof(T));
      std::uint32_t random = 0;
      if constexpr (Mantissa::rounding == mantissa_rounding::stochastic) {
        random = random_at(block, position + i);
      }
      int const word = i / per_word;
      int const shift = i % per_word * width;
      std::uint32_t const found = keep_one(words[word] >> shift, normalizer, random);
      std::uint32_t const residual = (found & mantissa) << dropped;
      rounded[word] = shift == 0 ? residual : rounded[word] | residual << shift;
      std::uint32_t const exponent = found >> 16;
      exponents[i / 2] = i % 2 == 0 ? exponent : exponents[i / 2] | exponent << 16;
    }
  }
  /// What is kept of a weight: exponent << 16 | residual, with 256 added to the exponent of a NaN that keeps no
  /// mantissa bit. normalizer: -1 for none. Few rows call it, so that it is not expanded eight times.
  __device__ __noinline__ static std::uint32_t keep_one(std::uint32_t word, int normalizer, std::uint32_t random) {
    std::uint32_t const weight = sizeof(T) == 2 ? word & 0xffffU : word;
    kept_value const found = normalizer >= 0 ? Mantissa::template quantize_normalized<T>(
                                                   weight, static_cast<std::uint32_t>(normalizer), random)
                                             : Mantissa::template quantize<T>(weight, random);
    return (found.exponent | (found.lost_nan ? 256U : 0U)) << 16 | found.residual;
  }

  /// Puts signs of `words` and mantissas of `rounded` next to each other, as units have them.
  __device__ __forceinline__ static void pack(std::uint32_t const (&words)[4], std::uint32_t const (&rounded)[4],
                                              std::uint32_t (&packed)[unit_words]) {
    std::uint32_t both[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      both[i] = ((rounded[i] >> dropped) & (mantissa * copies)) |
                ((words[i] >> (8 * static_cast<int>(sizeof(T)) - bits)) & ((1U << kept) * copies));
    }
    if constexpr (per_word == 1) {
      packed[0] = both[0] | both[1] << bits | both[2] << 2 * bits | both[3] << 3 * bits;
    } else if constexpr (bits == 8) {
      packed[0] = pick_bytes(both[0], both[1], 0x6420);
      packed[1] = pick_bytes(both[2], both[3], 0x6420);
    } else if constexpr (bits == 4) {
      std::uint32_t const first = both[0] | both[1] << 8;
      std::uint32_t const second = both[2] | both[3] << 8;
      packed[0] = pick_bytes(first, second, 0x5410) | pick_bytes(first, second, 0x7632) << 4;
    } else {
      std::uint32_t const all = both[0] | both[1] << 2 * bits | both[2] << 4 * bits | both[3] << 6 * bits;
      packed[0] = (all & 0xffffU) | all >> 16 << bits;
    }
  }
};

/// How a warp splits weights of which a keep_mantissa keeps a part, or all.
template <class T, class Mantissa>
using split_rows_of = typename std::conditional_t<Mantissa::template is_lossless<T>, std::type_identity<split_rows<T>>,
                                                  std::type_identity<split_kept_rows<T, Mantissa>>>::type;

}  // namespace v0
}  // namespace tessera
