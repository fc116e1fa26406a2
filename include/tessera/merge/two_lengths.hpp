// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Two lengths, which mergers of directions keep, and the lengths and the angle that follow from the products of a
/// pair. Every executor gives the same bits.
///
///     tessera::pair_products const measured{25.0, 16.0, 12.0};             // |a|^2, |b|^2 and a . b
///     float const angle = tessera::angle_between(measured);                // 0 to pi
///     float const length = tessera::length_of(measured.first);             // |a|
///     auto const kept = tessera::two_lengths<float16>::of(length, tessera::length_of(measured.second));
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

/// The factors that restore either vector: the merged vector times its own factor, usually its length.
template <class Length>
struct two_lengths {
  Length first;   ///< length, or another factor, of the first vector
  Length second;  ///< length, or another factor, of the second vector

  /// Stores two lengths, rounded to `Length`.
  TESSERA_FN static constexpr two_lengths of(float first, float second) {
    return {store<Length>(first), store<Length>(second)};
  }
  /// The length of one vector of the pair.
  TESSERA_FN constexpr float of_side(side which) const { return load(which == side::first ? first : second); }
};

/// Directions whose angle is within this of pi have no middle: any way between them would do.
inline constexpr float nearly_opposite = 0.05F;

/// The length of a vector, given its square. A length below the smallest normal float counts as zero. Lengths saturate
/// at the largest float; infinities and NaN pass.
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

/// The angle, between 0 and pi, within 2.5e-7; 0 if either vector is zero, NaN if either is not finite. It is computed
/// from the sine and the cosine, because the cosine alone loses half of its digits near 0 and pi.
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
