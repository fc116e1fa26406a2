// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Mergers to compare spherical interpolation with: the ones that MiniCache (arXiv 2405.14366) calls average and max
/// norm, and the average of directions, which differs little from interpolation and needs no sines.
///
///     average_merger<float>              (a + b) / 2, for both
///     longer_vector_merger<float>        the longer one of a and b, for both; of equal lengths b
///     average_direction_merger<float>    the direction of a / |a| + b / |b|, with either's own length
#pragma once

#include <math.h>

#include <tessera/concepts/merger.hpp>
#include <tessera/config.hpp>
#include <tessera/merge/direction_merger.hpp>
#include <tessera/merge/magnitude.hpp>
#include <tessera/merge/two_lengths.hpp>
#include <tessera/reduce/pair_products.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

struct average_rule {
  TESSERA_FN static mix_weights weights(pair_products const&) { return {0.5F, 0.5F}; }
};

struct longer_vector_rule {
  TESSERA_FN static mix_weights weights(pair_products const& measured) {
    return measured.first > measured.second ? mix_weights{1.0F, 0.0F} : mix_weights{0.0F, 1.0F};
  }
};

struct average_direction_rule {
  static constexpr bool leaves_single_directions = true;
  TESSERA_FN static mix_weights weights(pair_products const& measured) {
    float const first = length_of(measured.first);
    float const second = length_of(measured.second);
    if (first == 0.0F || second == 0.0F) {
      return only_direction(first, second);
    }
    if (angle_between(measured) > static_cast<float>(pi) - nearly_opposite) {
      return {0.0F, 1.0F / second};
    }
    double const cosine = measured.cross / (::sqrt(measured.first) * ::sqrt(measured.second));
    auto const both = static_cast<float>(::sqrt(::fma(2.0, cosine, 2.0)));  // the length of the sum of directions
    return {1.0F / (first * both), 1.0F / (second * both)};
  }
};

}  // namespace detail

/// Half of the sum, which is restored for both vectors whatever their lengths were; a vector of zeros is restored to
/// zeros.
template <class Length>
using average_merger = direction_merger<detail::average_rule, Length, as_merged>;

/// The longer vector, which is restored for both; the second one where lengths are equal.
template <class Length>
using longer_vector_merger = direction_merger<detail::longer_vector_rule, Length, as_merged>;

/// The direction of the sum of the unit vectors; the direction of the second vector where they are nearly opposite.
template <class Length, class Magnitude = preserve_length>
using average_direction_merger = direction_merger<detail::average_direction_rule, Length, Magnitude>;

static_assert(Merger<average_merger<float>> && Merger<longer_vector_merger<float>>);
static_assert(Merger<average_direction_merger<float>>);

}  // namespace v0
}  // namespace tessera
