// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Which pairs of vectors stay unmerged, because their directions are too far apart: MiniCache (arXiv 2405.14366),
/// section 4.2.
///
///     auto const rule = tessera::retain_most_different::range(0.05F);      // the paper's
///     float const threshold = rule.threshold(angles);      // the least and the largest angle of a sequence
///     bool const stays = tessera::stays_apart(angle, threshold);
///
/// Equation 4 as printed keeps d < d_min + gamma (d_max - d_min), which are the most similar pairs if d is a distance,
/// as the paper defines it. Its text, figures and ratios mean the most different pairs. Here a pair stays apart if its
/// angle is at least d_max - gamma (d_max - d_min).
///
/// Every rule comes down to a threshold on the angle, which can be kept: later pairs are judged by it alone. So the
/// rules `none` and `angle` choose the same tokens whether a cache is filled at once or token by token. With `range`
/// and `fraction` this holds once their threshold is known, and the threshold depends on how many tokens come first.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/trigonometry.hpp>
#include <tessera/merge/two_lengths.hpp>
#include <tessera/reduce/minimum_maximum.hpp>

namespace tessera {
inline namespace v0 {

/// How pairs that are not merged are chosen.
enum class retention_rule : std::uint8_t {
  none,      ///< all pairs are merged
  range,     ///< angles in the uppermost `amount` of the range between the least and the largest angle
  fraction,  ///< the largest angles, at most `amount` of all angles
  angle      ///< angles of at least `amount` radians
};

/// A threshold that no angle reaches.
inline constexpr float no_threshold = infinity;

/// If the range of angles is smaller than this, the angles are equal but for rounding: angles of one padding token at
/// different positions, with bfloat16 keys, are within 2^-8 of each other.
inline constexpr float least_range_of_angles = 0x1p-6F;

/// Whether the most different pairs can be told from the others. They cannot where all angles are equal or NaN, or
/// where there are none.
[[nodiscard]] TESSERA_FN constexpr bool tells_apart(interval<float> angles) {
  return angles.maximum - angles.minimum >= least_range_of_angles;
}

struct retain_most_different {
  static constexpr bool whole_tokens = false;  ///< each head decides for itself

  retention_rule rule = retention_rule::range;  ///< what the threshold follows from
  float amount = 0.05F;                         ///< 0.05 of the range of angles, as in the paper

  /// All pairs are merged.
  TESSERA_FN static constexpr retain_most_different none() { return {retention_rule::none, 0.0F}; }
  /// The uppermost `gamma` (0 to 1) of the range of angles stays apart.
  TESSERA_FN static constexpr retain_most_different range(float gamma) { return {retention_rule::range, gamma}; }
  /// The largest angles stay apart, at most the part `of_all` (0 to 1) of all angles.
  TESSERA_FN static constexpr retain_most_different fraction(float of_all) {
    return {retention_rule::fraction, of_all};
  }
  /// Angles of at least `radians` stay apart.
  TESSERA_FN static constexpr retain_most_different angle(float radians) { return {retention_rule::angle, radians}; }

  /// Whether the threshold follows from angles, and not from the rule alone.
  [[nodiscard]] TESSERA_FN constexpr bool needs_angles() const {
    return rule == retention_rule::range || rule == retention_rule::fraction;
  }
  /// The threshold of `rule` range. Where angles do not tell pairs apart, no pair is more different than others.
  [[nodiscard]] TESSERA_FN float threshold(interval<float> angles) const {
    if (!tells_apart(angles)) {
      return no_threshold;
    }
    return multiply_add(-amount, angles.maximum - angles.minimum, angles.maximum);
  }
  /// The threshold of a rule that needs no angles.
  [[nodiscard]] TESSERA_FN constexpr float threshold() const {
    return rule == retention_rule::angle ? amount : no_threshold;
  }
  /// For `rule` fraction: how many of `count` angles may stay apart.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t most(std::int64_t count) const {
    return static_cast<std::int64_t>(amount * static_cast<float>(count));
  }
};

/// The rule for vectors that hold all heads of a token together, as in the paper.
struct retain_most_different_tokens : retain_most_different {
  static constexpr bool whole_tokens = true;  ///< all heads of a token are one vector
};

/// Whether a pair with this angle stays unmerged. It does if the angle is NaN, because a vector is not finite.
TESSERA_FN constexpr bool stays_apart(float angle, float threshold) {
  return !(angle < threshold);
}

/// Whether directions with this angle are so nearly opposite that they have no middle.
TESSERA_FN constexpr bool is_nearly_opposite(float angle) {
  return angle > static_cast<float>(pi) - nearly_opposite;
}

}  // namespace v0
}  // namespace tessera
