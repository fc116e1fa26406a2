// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Merges two vectors into one direction between them, and keeps their two lengths: MiniCache (arXiv 2405.14366),
/// equations 2 and 3.
///
///     tessera::slerp_merger<float> merger{.share = 0.6F};         // 0.6 of the way from the first to the second
///     tessera::pair_products_reducer const reducer;
///     auto measured = reducer.identity();
///     for (int i = 0; i < n; ++i) { reducer.push(measured, {a[i], b[i]}); }
///     auto const weights = merger.mix(measured);
///     for (int i = 0; i < n; ++i) { merged[i] = weights.first * a[i] + weights.second * b[i]; }  // of length 1
///     auto const kept = merger.keep(measured);                     // |a| and |b|
///     float const again = merged[0] * kept.second;
///
/// `norm_weighted_slerp_merger` chooses the share of each pair by the two lengths.
#pragma once

#include <math.h>

#include <tessera/concepts/merger.hpp>
#include <tessera/config.hpp>
#include <tessera/core/trigonometry.hpp>
#include <tessera/merge/direction_merger.hpp>
#include <tessera/merge/magnitude.hpp>
#include <tessera/merge/two_lengths.hpp>
#include <tessera/reduce/pair_products.hpp>

namespace tessera {
inline namespace v0 {

/// The angle below which directions are mixed by their share alone.
inline constexpr float nearly_equal = 1e-4F;

/// The weights that make a vector of length 1 out of two: `share` of the way from the direction of the first to that of
/// the second. Where the formula has no answer:
///   * Directions closer than `nearly_equal` are mixed by their share alone.
///   * Directions within `nearly_opposite` of pi have no middle: the second one is taken. angle_between() lets a caller
///     keep such pairs unmerged instead.
///   * A vector shorter than the smallest normal float counts as zero: it restores to zeros, and leaves the direction
///     to the other vector.
TESSERA_FN inline mix_weights slerp_weights(pair_products const& measured, float share) {
  float const first = length_of(measured.first);
  float const second = length_of(measured.second);
  if (first == 0.0F || second == 0.0F) {
    return detail::only_direction(first, second);
  }
  float const angle = angle_between(measured);
  if (angle < nearly_equal) {
    return {(1.0F - share) / first, share / second};
  }
  if (angle > static_cast<float>(pi) - nearly_opposite) {
    return {0.0F, 1.0F / second};
  }
  double const arc = angle;
  double const part = share;
  double const sine = upper_sine(arc);
  // The addend 0 keeps compilers from contracting the product.
  double const to_first = upper_sine(::fma(part, arc, 0.0));
  double const to_second = upper_sine(::fma(1.0 - part, arc, 0.0));
  double const scale = 1.0 / sine;
  return {static_cast<float>(to_second * scale) / first, static_cast<float>(to_first * scale) / second};
}

namespace detail {

struct spherical_rule {
  static constexpr float usual_share = 0.6F;
  static constexpr bool leaves_single_directions = true;
  TESSERA_FN static mix_weights weights(pair_products const& measured, float share) {
    return slerp_weights(measured, share);
  }
};

/// The share that minimises the sum of both restored vectors' squared errors, within 0.006 for angles below 0.6: r^2 /
/// (1 + r^2), with r the second length over the first.
struct norm_weighted_rule {
  static constexpr bool leaves_single_directions = true;
  TESSERA_FN static mix_weights weights(pair_products const& measured) {
    double const both = measured.first + measured.second;
    return slerp_weights(measured, both > 0 ? static_cast<float>(measured.second / both) : 0.5F);
  }
};

}  // namespace detail

/// Spherical interpolation. With the angle W between the two directions, the merged direction is at `share` * W from
/// the first and (1 - `share`) * W from the second; a restored vector has its own length and is that far off in angle.
/// `Length` is the storage type of the kept lengths; with another `Magnitude` other factors are kept.
///
/// Finite vectors longer than the largest float are restored to that length; an infinity or a NaN is restored as NaN.
template <class Length, class Magnitude = preserve_length>
using slerp_merger = direction_merger<detail::spherical_rule, Length, Magnitude>;

static_assert(Merger<slerp_merger<float>>);

/// Spherical interpolation in which each pair has its own share: the merged direction is nearer to the longer vector.
template <class Length, class Magnitude = preserve_length>
using norm_weighted_slerp_merger = direction_merger<detail::norm_weighted_rule, Length, Magnitude>;

static_assert(Merger<norm_weighted_slerp_merger<float>>);

}  // namespace v0
}  // namespace tessera
