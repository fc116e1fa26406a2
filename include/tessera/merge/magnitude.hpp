// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Policies for the factor by which a merged vector is multiplied to restore either of the two; mergers take one.
///
///     tessera::slerp_merger<float, tessera::least_squares> merger;
///
/// The factor of a, with e the merged vector:
///
///     preserve_length  |a|                       a restored vector is as long as it was; for e of length 1
///     least_squares    (a . e) / (e . e)         the least error of a restored vector by itself
///     as_merged        1; 0 for a vector of zeros
///
/// MiniCache preserves lengths. Least squares has smaller errors of keys but shrinks them, which flattens a softmax.
/// Attention over such a cache is worse.
#pragma once

#include <math.h>

#include <tessera/concepts/merger.hpp>
#include <tessera/config.hpp>
#include <tessera/merge/two_lengths.hpp>
#include <tessera/reduce/pair_products.hpp>

namespace tessera {
inline namespace v0 {

/// The factors of both vectors, before they are stored.
using two_factors = two_lengths<float>;

/// Restored vectors are as long as the vectors were.
struct preserve_length {
  static constexpr bool keeps_lengths = true;  ///< the factors are the lengths, whatever the weights are
  /// The lengths of the two vectors.
  TESSERA_FN static two_factors factors(pair_products const& measured, mix_weights) {
    return {length_of(measured.first), length_of(measured.second)};
  }
};

/// Each restored vector is the vector of the merged direction that is nearest to the original, and shorter than it.
struct least_squares {
  /// The projections of the two vectors on the merged one, in units of its length; 0 for a vector of zeros.
  TESSERA_FN static two_factors factors(pair_products const& measured, mix_weights weights) {
    double const first = weights.first;
    double const second = weights.second;
    double const of_first = ::fma(first, measured.first, second * measured.cross);    // a . e
    double const of_second = ::fma(first, measured.cross, second * measured.second);  // b . e
    double const square = ::fma(first, of_first, second * of_second);                 // e . e
    if (!(square > 0)) {  // zeros; a NaN shows in the lengths
      return preserve_length::factors(measured, weights);
    }
    bool const has_first = length_of(measured.first) != 0.0F;
    bool const has_second = length_of(measured.second) != 0.0F;
    return {has_first ? static_cast<float>(of_first / square) : 0.0F,
            has_second ? static_cast<float>(of_second / square) : 0.0F};
  }
};

/// The merged vector is restored for both, whatever their lengths were.
struct as_merged {
  /// 1 for each vector, 0 for a vector of zeros.
  TESSERA_FN static two_factors factors(pair_products const& measured, mix_weights) {
    return {length_of(measured.first) == 0.0F ? 0.0F : 1.0F, length_of(measured.second) == 0.0F ? 0.0F : 1.0F};
  }
};

}  // namespace v0
}  // namespace tessera
