// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Angles from 0 to pi, for programs whose results must be bit-identical on host and device. The functions of each
/// platform's own library differ in the last bits.
///
///     double const angle = tessera::upper_arc_tangent(0.0, -1.0);     // pi
///     double const height = tessera::upper_sine(angle / 2);           // 1
///
/// They take sums, products, quotients and explicit multiply-adds in double, in one order; no compiler may contract
/// them further.
/// Both functions are within 1e-15 of the exact value.
#pragma once

#include <cstdint>
#include <math.h>  // not <cmath>: as in core/math.hpp

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {

inline constexpr double pi = 3.14159265358979323846;  ///< the circumference of a circle of diameter 1

namespace detail {

/// The number rounded towards zero to 20 binary digits behind the first one, which a device can hold in an instruction.
/// It is for the last terms of a series, which are far smaller than the first ones.
TESSERA_FN constexpr double short_number(double value) {
  return bit_cast<double>(bit_cast<std::uint64_t>(value) & 0xffffffff00000000ULL);
}

}  // namespace detail

/// The sine of `angle`, which lies between 0 and pi: Taylor's series on the half that is nearer to 0.
TESSERA_FN inline double upper_sine(double angle) {
  double const x = angle > pi / 2 ? pi - angle : angle;
  double const square = x * x;
  constexpr int terms = 10;
  constexpr double inverse_factorials[terms] = {-1.0 / 6.0,
                                                1.0 / 120.0,
                                                -1.0 / 5040.0,
                                                1.0 / 362880.0,
                                                -1.0 / 39916800.0,
                                                1.0 / 6227020800.0,
                                                -1.0 / 1307674368000.0,
                                                detail::short_number(1.0 / 355687428096000.0),
                                                detail::short_number(-1.0 / 1.21645100408832e17),
                                                detail::short_number(1.0 / 5.109094217170944e19)};
  double sum = inverse_factorials[terms - 1];
  for (int i = terms - 2; i >= 0; --i) {
    sum = ::fma(sum, square, inverse_factorials[i]);
  }
  return ::fma(x * square, sum, x);
}

/// The angle of the point (x, y) from the positive x axis, 0 for the origin; `y` is not negative.
TESSERA_FN inline double upper_arc_tangent(double y, double x) {
  double const along = x < 0 ? -x : x;
  if (y == 0 && along == 0) {
    return 0;
  }
  bool const is_steep = y > along;
  double const less = is_steep ? along : y;
  double const more = is_steep ? y : along;
  constexpr double eighth_turn_half = 0.41421356237309503;  // tan(pi / 8)
  bool const is_far = less > eighth_turn_half * more;
  double const rest = (is_far ? less - more : less) / (is_far ? less + more : more);
  double const square = rest * rest;
  constexpr int last = 41;  // 0.1716^20 / 41 is below 1e-16
  constexpr int first_short = 21;
  double sum = detail::short_number(1.0 / last);
  for (int i = last - 2; i >= 3; i -= 2) {
    sum = ::fma(-sum, square, i >= first_short ? detail::short_number(1.0 / i) : 1.0 / i);
  }
  double const small = ::fma(-(rest * square), sum, rest);
  double const within = is_far ? pi / 4 + small : small;
  double const first = is_steep ? pi / 2 - within : within;
  return x < 0 ? pi - first : first;
}

}  // namespace v0
}  // namespace tessera
