// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `direction_merger`: the common part of mergers of two vectors: the three products of the pair, and the kept factors.
///
///     struct halfway {                                       // a rule: the weights of two vectors that are not zero
///       TESSERA_FN static mix_weights weights(pair_products const& measured);
///     };
///     struct part_of_the_way {                               // a rule with a share, which callers choose
///       static constexpr float usual_share = 0.6F;
///       TESSERA_FN static mix_weights weights(pair_products const& measured, float share);
///     };
///     tessera::direction_merger<halfway, float, preserve_length> merger;
///     tessera::direction_merger<part_of_the_way, float, preserve_length> other{.share = 0.5F};
#pragma once

#include <type_traits>

#include <tessera/concepts/merger.hpp>
#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/merge/magnitude.hpp>
#include <tessera/merge/two_lengths.hpp>
#include <tessera/reduce/pair_products.hpp>

namespace tessera {
inline namespace v0 {

/// The type of a share where a rule has none.
struct no_share {};

namespace detail {

template <class Rule>
struct share_of {
  using type = no_share;
  TESSERA_FN static constexpr type usual() { return {}; }
};

template <class Rule>
requires requires {
  Rule::usual_share;
}
struct share_of<Rule> {
  using type = float;
  TESSERA_FN static constexpr type usual() { return Rule::usual_share; }
};

/// Whether a rule leaves the direction of a vector, of length 1, where the other vector is zero.
template <class Rule>
inline constexpr bool leaves_single_directions = false;
template <class Rule>
requires requires {
  Rule::leaves_single_directions;
}
inline constexpr bool leaves_single_directions<Rule> = Rule::leaves_single_directions;

/// Whether a policy of magnitudes keeps lengths.
template <class Magnitude>
inline constexpr bool keeps_lengths = false;
template <class Magnitude>
requires requires {
  Magnitude::keeps_lengths;
}
inline constexpr bool keeps_lengths<Magnitude> = Magnitude::keeps_lengths;

/// The direction of the only vector that has one; zeros where both are zero.
TESSERA_FN inline mix_weights only_direction(float first, float second) {
  return {first == 0.0F ? 0.0F : 1.0F / first, second == 0.0F ? 0.0F : 1.0F / second};
}

}  // namespace detail

/// Rule: an empty type with `static mix_weights weights(pair_products const&)`, or with a `usual_share` and `static
/// mix_weights weights(pair_products const&, float share)`; `static constexpr bool leaves_single_directions = true` if
/// the weights of a vector and zeros give its direction. Length: the storage type of the kept factors. Magnitude: see
/// merge/magnitude.hpp.
template <class Rule, class Length, class Magnitude>
struct direction_merger {
  /// The type of the share: float, or no_share.
  using share_type = typename detail::share_of<Rule>::type;
  /// Whether a vector that is merged with zeros is kept as its direction and its length.
  static constexpr bool keeps_single_vectors =
      detail::leaves_single_directions<Rule> && detail::keeps_lengths<Magnitude>;

  share_type share = detail::share_of<Rule>::usual();  ///< from 0, the first direction, to 1, the second one

  /// Throws value_error for a share that is not from 0 to 1. Caches call it, with the name of the `function`.
  void check_options(char const* function) const {
    if constexpr (!std::is_same_v<share_type, no_share>) {
      check<value_error>(share >= 0 && share <= 1, function, ": the share of the merger is ", share,
                         " but must be from 0 to 1");
    }
  }

  TESSERA_FN mix_weights mix(pair_products const& measured) const {
    if constexpr (std::is_same_v<share_type, no_share>) {
      return Rule::weights(measured);
    } else {
      return Rule::weights(measured, share);
    }
  }

  TESSERA_FN two_lengths<Length> keep(pair_products const& measured) const {
    two_factors const factors = Magnitude::factors(measured, mix(measured));
    return two_lengths<Length>::of(factors.first, factors.second);
  }
};

}  // namespace v0
}  // namespace tessera
