// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What a Merger of directions keeps, and what it reads from the products of a pair: lengths and the angle. Every
/// backend gives the same bits.
///
///     tessera::pair_products const measured = ...;                          // of the vectors a and b
///     float const angle = tessera::angle_between(measured);                // 0 to pi
///     float const length = tessera::length_of(measured.first);             // |a|
///     tessera::two_lengths<float16> const kept{store<float16>(length), ...};
#pragma once

#include <math.h>

#include <tessera/concepts/merger.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/trigonometry.hpp>
#include <tessera/reduce/pair_products.hpp>

namespace tessera {
inline namespace v0 {

/// What restores either vector: the merged one times its own factor, as a rule its length.
template <class Length>
struct two_lengths {
  Length first;   ///< of the first vector
  Length second;  ///< of the second vector

  /// Stores two lengths, rounded to `Length`.
  TESSERA_FN static constexpr two_lengths of(float first, float second) {
    return {store<Length>(first), store<Length>(second)};
  }
  /// The length of one vector of the pair.
  TESSERA_FN constexpr float of_side(side which) const { return load(which == side::first ? first : second); }
};

/// Directions within this of pi have no middle: the way between them is any.
inline constexpr float nearly_opposite = 0.05F;

/// The length of a vector, given its square. Shorter than the smallest normal float counts as zero; saturates at the
/// largest float; infinities and NaN pass.
TESSERA_FN inline float length_of(double square) {
  constexpr double smallest = 0x1p-126;
  constexpr double largest = 3.4028234663852886e38;
  double const root = ::sqrt(square);
  if (root < smallest) {
    return 0.0F;
  }
  bool const is_too_long = root > largest && root < static_cast<double>(infinity);
  return static_cast<float>(is_too_long ? largest : root);
}

/// Between 0 and pi, within 2.5e-7; 0 if either vector is zero, NaN if either is not finite. From the sine and the
/// cosine, because the cosine alone loses half of its digits near 0 and pi.
TESSERA_FN inline float angle_between(pair_products const& measured) {
  if (length_of(measured.first) == 0.0F || length_of(measured.second) == 0.0F) {
    return 0.0F;
  }
  if (!(measured.first + measured.second < static_cast<double>(infinity))) {
    return bit_cast<float>(0x7fffffffU);
  }
  // |a|^2 |b|^2 - (a.b)^2, whose two halves nearly cancel, with the rounding error of the second one added back.
  double const subtracted = measured.cross * measured.cross;
  double const lost = ::fma(-measured.cross, measured.cross, subtracted);
  double const square = ::fma(measured.first, measured.second, -subtracted) + lost;
  double const sine = square > 0 ? ::sqrt(square) : 0.0;
  return static_cast<float>(upper_arc_tangent(sine, measured.cross));
}

}  // namespace v0
}  // namespace tessera
