// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Merges two vectors into one direction between them, and keeps their two lengths: MiniCache (arXiv 2405.14366),
/// equations 2 and 3.
///
///     tessera::slerp_merger<float> merger{.share = 0.6F};         // 0.6 of the way from the first to the second
///     auto measured = merger.measure().identity();
///     for (i = 0; i < n; ++i) { merger.measure().push(measured, {a[i], b[i]}); }
///     auto const weights = merger.mix(measured);
///     for (i = 0; i < n; ++i) { merged[i] = weights.first * a[i] + weights.second * b[i]; }  // of length 1
///     auto const kept = merger.keep(measured);                     // |a| and |b|
///     float const again = merger.restore(merged[0], kept, tessera::side::second);
#pragma once

#include <math.h>

#include <tessera/concepts/merger.hpp>
#include <tessera/config.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/reduce/pair_products.hpp>

namespace tessera {
inline namespace v0 {

/// What restores either vector from the common direction.
template <class Length>
struct two_lengths {
  Length first;
  Length second;
};

/// Spherical interpolation. With the angle W between the two directions, the merged direction is at `share` * W from
/// the first and (1 - `share`) * W from the second; a restored vector has its own length and is that far off in angle.
/// `Length` is the storage type of the kept lengths.
///
/// The angle comes from atan2, because acos loses half of the digits near 0 and pi. Where the formula has no answer:
///   * directions closer than `nearly_equal` are mixed by their share alone;
///   * directions within `nearly_opposite` of pi have no middle: the second one is taken. `angle` lets a caller keep
///     such pairs unmerged instead;
///   * a vector shorter than the smallest normal float counts as zero: it restores to zeros, and leaves the direction
///     to the other vector.
/// Finite vectors longer than the largest float are restored to that length; an infinity or a NaN comes back as NaN.
template <class Length>
struct slerp_merger {
  using kept_type = two_lengths<Length>;

  static constexpr float nearly_equal = 1e-4F;
  static constexpr float nearly_opposite = 0.05F;

  float share = 0.6F;  ///< 0 gives the first direction, 1 the second one

  TESSERA_FN constexpr pair_products_reducer measure() const { return {}; }

  /// Between 0 and pi; 0 if either vector is zero.
  TESSERA_FN float angle(pair_products const& measured) const {
    if (length(measured.first) == 0.0F || length(measured.second) == 0.0F) {
      return 0.0F;
    }
    double const lengths = ::sqrt(measured.first) * ::sqrt(measured.second);
    double const square = measured.first * measured.second - measured.cross * measured.cross;
    double const sine = square > 0 ? ::sqrt(square) / lengths : 0.0;
    return ::atan2f(static_cast<float>(sine), static_cast<float>(measured.cross / lengths));
  }

  TESSERA_FN mix_weights mix(pair_products const& measured) const {
    float const first = length(measured.first);
    float const second = length(measured.second);
    if (first == 0.0F || second == 0.0F) {
      return {first == 0.0F ? 0.0F : 1.0F / first, second == 0.0F ? 0.0F : 1.0F / second};
    }
    mix_weights const arc = arc_weights(angle(measured));
    return {arc.first / first, arc.second / second};
  }

  TESSERA_FN kept_type keep(pair_products const& measured) const {
    return {store<Length>(length(measured.first)), store<Length>(length(measured.second))};
  }

  TESSERA_FN float restore(float merged, kept_type kept, side which) const {
    return merged * load(which == side::first ? kept.first : kept.second);
  }

 private:
  static constexpr float pi = 3.14159265358979F;
  static constexpr double smallest_length = 0x1p-126;
  static constexpr double largest_length = 3.4028234663852886e38;

  /// Saturates at the largest float; infinities and NaN pass.
  TESSERA_FN static float length(double square) {
    double const root = ::sqrt(square);
    if (root < smallest_length) {
      return 0.0F;
    }
    bool const too_long = root > largest_length && root < static_cast<double>(infinity);
    return static_cast<float>(too_long ? largest_length : root);
  }

  /// The weights of two unit vectors `w` apart.
  TESSERA_FN mix_weights arc_weights(float w) const {
    if (w < nearly_equal) {
      return {1.0F - share, share};
    }
    if (w > pi - nearly_opposite) {
      return {0.0F, 1.0F};
    }
    float const sine = ::sinf(w);
    return {::sinf((1.0F - share) * w) / sine, ::sinf(share * w) / sine};
  }
};

static_assert(Merger<slerp_merger<float>>);

}  // namespace v0
}  // namespace tessera
