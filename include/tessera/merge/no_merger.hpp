// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `no_merger`: the merger of caches that merge no layers: it makes a direction and a length of each vector, and merges
/// no two vectors. Caches with another merger use it for layers that are in no pair.
///
///     tessera::no_merger const merger;
///     auto const weights = merger.mix({25.0, 0.0, 0.0});       // of a vector of length 5: {0.2, 0}
///     auto const kept = merger.keep({25.0, 0.0, 0.0});         // {5, 0}
///
/// A cache of such a merger refuses pairs of layers: pair() and half_merged() at compile time, a list of parts that the
/// caller made with a value_error.
#pragma once

#include <tessera/concepts/merger.hpp>
#include <tessera/config.hpp>
#include <tessera/merge/direction_merger.hpp>
#include <tessera/merge/two_lengths.hpp>
#include <tessera/reduce/pair_products.hpp>

namespace tessera {
inline namespace v0 {

struct no_merger {
  static constexpr bool merges_pairs = false;         ///< caches refuse pairs of layers
  static constexpr bool keeps_single_vectors = true;  ///< the mixture of a vector and zeros is its direction

  /// The weight that gives the first vector the length 1, or 0 for a vector of zeros; the second vector has none.
  TESSERA_FN mix_weights mix(pair_products const& measured) const {
    return detail::only_direction(length_of(measured.first), 0.0F);
  }
  /// The length of the first vector, and 0.
  TESSERA_FN two_lengths<float> keep(pair_products const& measured) const { return {length_of(measured.first), 0.0F}; }
};

static_assert(Merger<no_merger>);

}  // namespace v0
}  // namespace tessera
