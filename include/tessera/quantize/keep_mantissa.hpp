// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Keeps sign, exponent and the first K mantissa bits of a floating-point number: NeuZip's lossy step.
///
/// NeuZip (arXiv 2410.20650), section 2.3. With K equal to the format's mantissa bits nothing is lost. All arithmetic
/// is on integers, so results are the same on every machine and under every compiler flag.
///
///     using keep = tessera::keep_mantissa<3>;
///     auto kept = keep::quantize<tessera::bfloat16>(bits);          // exponent, residual = sign << 3 | mantissa
///     auto back = keep::restore<tessera::bfloat16>(kept);           // within 1/17 of the value, relatively
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/entropy/exponent_split.hpp>

namespace tessera {
inline namespace v0 {

/// How a value between two neighbours that can be kept is rounded. Relative errors of normal numbers up to the largest
/// that can be kept, with K bits: half_away and half_even at most 1 / (2^(K+1) + 1), toward_zero and stochastic below 1
/// / 2^K. The expected error of stochastic is zero.
enum class mantissa_rounding : std::uint8_t { half_away, half_even, toward_zero, stochastic };

/// A value with fewer mantissa bits.
struct kept_value {
  std::uint32_t exponent = 0;  ///< the exponent field
  std::uint32_t residual = 0;  ///< sign << K | mantissa
  bool lost_nan = false;       ///< a NaN that K = 0 cannot tell from infinity
};

/// Finite values stay finite: a value that would round to infinity becomes the largest that can be kept. Infinities
/// stay. A NaN stays a NaN with the first mantissa bit set, for K = 0 through `lost_nan`. Zeros keep their sign.
/// Subnormals are rounded to multiples of 2^-K of the smallest normal number, so their bound is absolute.
template <int K, mantissa_rounding Rounding = mantissa_rounding::half_away>
struct keep_mantissa {
  static_assert(K >= 0 && K <= 23, "tessera: keep_mantissa keeps 0 to 23 bits");
  static constexpr int kept_bits = K;                      ///< bits of the mantissa that are kept
  static constexpr mantissa_rounding rounding = Rounding;  ///< how the other bits are rounded away

  /// Whether values of `T` are restored bit for bit.
  template <class T>
  static constexpr bool is_lossless = K == scalar_traits<T>::mantissa_bits;

  /// Drops mantissa bits. random: uniform bits, which stochastic rounding alone uses.
  template <class T>
  TESSERA_FN static constexpr kept_value quantize(std::uint32_t bits, std::uint32_t random = 0) {
    using split = exponent_split<T>;
    if constexpr (is_lossless<T>) {
      return {split::exponent(bits), split::residual(bits), false};
    } else {
      check<T>();
      if (split::exponent(bits) == split::largest_exponent) {
        return keep_special<T>(bits);
      }
      return round<T>(sign<T>(bits), std::uint64_t{magnitude<T>(bits)}, split::mantissa_bits, random);
    }
  }

  /// Does what quantize does, for the value divided by 1 + normalizer / 256, rounded once. The quotient of a value
  /// below twice the smallest normal number may be subnormal. Then the bound is absolute: 2^-K of the smallest normal
  /// number after restore_normalized.
  template <class T>
  TESSERA_FN static constexpr kept_value quantize_normalized(std::uint32_t bits, std::uint32_t normalizer,
                                                             std::uint32_t random = 0) {
    check<T>();
    using split = exponent_split<T>;
    constexpr int mantissa_bits = split::mantissa_bits;
    std::uint64_t exponent = split::exponent(bits);
    if (exponent == split::largest_exponent) {
      return keep_special<T>(bits);
    }
    std::uint64_t const implicit = exponent > 0 ? 1u << mantissa_bits : 0;
    std::uint64_t const significand = implicit | (bits & ((1u << mantissa_bits) - 1));
    exponent = exponent > 0 ? exponent : 1;
    // The quotient with `guard` more fraction bits; bits beyond them matter only as "not a tie".
    constexpr int guard = 30;
    constexpr std::uint64_t one = std::uint64_t{1} << (mantissa_bits + guard);
    std::uint64_t const divisor = 256 + normalizer;
    std::uint64_t numerator = significand << (8 + guard);
    if (numerator / divisor < one && exponent > 1) {
      numerator <<= 1;
      --exponent;
    }
    std::uint64_t fixed = numerator / divisor;
    bool const inexact = fixed * divisor != numerator;
    fixed = fixed >= one ? ((exponent << (mantissa_bits + guard)) | (fixed - one)) : fixed;
    return round<T>(sign<T>(bits), fixed | (inexact ? 1 : 0), mantissa_bits + guard, random);
  }

  /// The bit pattern of a kept value.
  template <class T>
  TESSERA_FN static constexpr std::uint32_t restore(kept_value kept) {
    using split = exponent_split<T>;
    if constexpr (is_lossless<T>) {
      return split::join(kept.exponent, kept.residual);
    } else {
      constexpr int dropped = split::mantissa_bits - K;
      std::uint32_t const sign = kept.residual >> K;
      std::uint32_t mantissa = (kept.residual & ((1u << K) - 1)) << dropped;
      mantissa |= kept.lost_nan ? 1u << (split::mantissa_bits - 1) : 0;
      return split::join(kept.exponent, (sign << split::mantissa_bits) | mantissa);
    }
  }

  /// The bit pattern of a kept value times 1 + normalizer / 256, rounded to nearest even; finite values stay finite.
  template <class T>
  TESSERA_FN static constexpr std::uint32_t restore_normalized(kept_value kept, std::uint32_t normalizer) {
    using split = exponent_split<T>;
    constexpr int mantissa_bits = split::mantissa_bits;
    if (kept.exponent == split::largest_exponent || normalizer == 0) {
      return restore<T>(kept);
    }
    std::uint32_t const sign = kept.residual >> K;
    std::uint64_t const implicit = kept.exponent > 0 ? 1u << K : 0;
    std::uint64_t const significand = implicit | (kept.residual & ((1u << K) - 1));
    std::uint64_t exponent = kept.exponent > 0 ? kept.exponent : 1;
    // The product in fixed point, with one more bit than any product has below its leading one.
    constexpr int fraction = mantissa_bits > K + 8 ? mantissa_bits + 1 : K + 9;
    constexpr std::uint64_t one = std::uint64_t{1} << fraction;
    std::uint64_t product = (significand * (256 + normalizer)) << (fraction - K - 8);
    if (product >= 2 * one) {
      product = (product >> 1) | (product & 1);
      ++exponent;
    }
    std::uint64_t const fixed = product >= one ? ((exponent << fraction) | (product - one)) : product;
    constexpr int shift = fraction - mantissa_bits;
    std::uint64_t const half_less_one = (std::uint64_t{1} << (shift - 1)) - 1;
    std::uint64_t magnitude = (fixed + half_less_one + ((fixed >> shift) & 1)) >> shift;
    constexpr std::uint64_t infinite = std::uint64_t{split::largest_exponent} << mantissa_bits;
    magnitude = magnitude >= infinite ? infinite - 1 : magnitude;
    return (sign << (split::exponent_bits + mantissa_bits)) | static_cast<std::uint32_t>(magnitude);
  }

 private:
  template <class T>
  TESSERA_FN static constexpr void check() {
    static_assert(scalar_traits<T>::has_infinity && scalar_traits<T>::bits >= 16,
                  "tessera: fewer mantissa bits can be kept of fp32, fp16 and bf16 only");
    static_assert(K < scalar_traits<T>::mantissa_bits,
                  "tessera: keep_mantissa<K> needs K below the format's mantissa bits here");
  }

  template <class T>
  TESSERA_FN static constexpr std::uint32_t sign(std::uint32_t bits) {
    return bits >> (scalar_traits<T>::bits - 1);
  }

  template <class T>
  TESSERA_FN static constexpr std::uint32_t magnitude(std::uint32_t bits) {
    return bits & ((1u << (scalar_traits<T>::bits - 1)) - 1);
  }

  template <class T>
  TESSERA_FN static constexpr kept_value keep_special(std::uint32_t bits) {
    using split = exponent_split<T>;
    std::uint32_t const mantissa = bits & ((1u << split::mantissa_bits) - 1);
    std::uint32_t kept = mantissa >> (split::mantissa_bits - K);
    if constexpr (K > 0) {
      kept |= mantissa != 0 ? 1u << (K - 1) : 0;
    }
    return {split::largest_exponent, (sign<T>(bits) << K) | kept, K == 0 && mantissa != 0};
  }

  /// Rounds a magnitude, which is exponent << fraction_bits | mantissa, so that carries run into the exponent.
  template <class T>
  TESSERA_FN static constexpr kept_value round(std::uint32_t sign, std::uint64_t magnitude, int fraction_bits,
                                               std::uint32_t random) {
    int const shift = fraction_bits - K;
    std::uint64_t const half = std::uint64_t{1} << (shift - 1);
    if constexpr (Rounding == mantissa_rounding::half_away) {
      magnitude += half;
    } else if constexpr (Rounding == mantissa_rounding::half_even) {
      magnitude += half - 1 + ((magnitude >> shift) & 1);
    } else if constexpr (Rounding == mantissa_rounding::stochastic) {
      std::uint64_t const bits = shift >= 32 ? std::uint64_t{random} << (shift - 32) : random >> (32 - shift);
      magnitude += bits;
    }
    magnitude >>= shift;
    constexpr std::uint64_t infinite = std::uint64_t{exponent_split<T>::largest_exponent} << K;
    magnitude = magnitude >= infinite ? infinite - 1 : magnitude;
    std::uint32_t const mantissa = static_cast<std::uint32_t>(magnitude) & ((1u << K) - 1);
    return {static_cast<std::uint32_t>(magnitude >> K), (sign << K) | mantissa, false};
  }
};

}  // namespace v0
}  // namespace tessera
