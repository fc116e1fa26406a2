// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `direction_merger`: what mergers of two vectors have in common: the three products of the pair, and factors kept.
///
///     struct halfway {                                       // a rule: the weights of two vectors that are not zero
///       TESSERA_FN static mix_weights weights(pair_products const& measured);
///     };
///     using merger = tessera::direction_merger<halfway, float, preserve_length>;
#pragma once

#include <tessera/concepts/merger.hpp>
#include <tessera/config.hpp>
#include <tessera/merge/magnitude.hpp>
#include <tessera/merge/two_lengths.hpp>
#include <tessera/reduce/pair_products.hpp>

namespace tessera {
inline namespace v0 {

/// Rule: an empty type with `static mix_weights weights(pair_products const&)`. Length: the storage type of the kept
/// factors. Magnitude: see merge/magnitude.hpp.
template <class Rule, class Length, class Magnitude>
struct direction_merger {
  using kept_type = two_lengths<Length>;

  TESSERA_FN constexpr pair_products_reducer measure() const { return {}; }

  TESSERA_FN mix_weights mix(pair_products const& measured) const { return Rule::weights(measured); }

  TESSERA_FN kept_type keep(pair_products const& measured) const {
    const two_factors factors = Magnitude::factors(measured, mix(measured));
    return kept_type::of(factors.first, factors.second);
  }

  TESSERA_FN float restore(float merged, kept_type kept, side which) const { return merged * kept.of_side(which); }
};

namespace detail {

/// The direction of the only vector that has one; nothing where both are zero.
TESSERA_FN inline mix_weights only_direction(float first, float second) {
  return {first == 0.0F ? 0.0F : 1.0F / first, second == 0.0F ? 0.0F : 1.0F / second};
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
