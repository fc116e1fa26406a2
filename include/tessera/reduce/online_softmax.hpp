// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The online softmax of a row of scores, which arrive tile by tile, while the weighted vectors are summed: the state
/// that attention keeps for a row. Scores are in base 2: natural scores times log2(e).
///
///     tessera::online_softmax<float> softmax;
///     auto state = softmax.identity();
///     for (auto const& piece : pieces) {
///       total *= softmax.turn(state, largest_of(piece));       // whatever was added up by weights before
///       for (auto const& [score, value] : piece) {
///         float const weight = softmax.weight(state, score);   // at most 1
///         state.sum += weight;
///         total += weight * value;
///       }
///     }
///     float const mean = total / state.sum;
///     float const lse = softmax.value(state);                  // natural: log of the sum of 2^score
///
/// Weights are relative to a reference. The reference of a piece is the largest score of that piece, not of all so far,
/// so that weights which are rounded to 8 bits use their whole range in every piece, whatever the earlier scores are.
/// But it is at most 64 below the largest score of all, a factor of 2^64, so that sums in fp32 cannot overflow. turn()
/// gives the factor that moves earlier sums to the new reference; it may be greater than 1.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/attention_quantizer.hpp>
#include <tessera/concepts/reducer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/reduce/log_sum_exp.hpp>

namespace tessera {
inline namespace v0 {

/// The state of a row of scores; all of it is in base 2.
template <class T>
struct softmax_state {
  T largest;    ///< the largest score
  T reference;  ///< the reference of the weights: at most `largest`
  T sum;        ///< sum of 2^(score - reference)
};

/// A weight and the number that its code stands for.
struct weighed_number {
  float number;  ///< from 0 to the quantizer's largest code
  float weight;  ///< the weight, at most 1
};

/// A weight and the code that a quantizer has for it.
template <class Code, class T>
struct weighed_code {
  Code code;  ///< the code nearest to the weight times the largest code
  T weight;   ///< the weight, at most 1
};

/// `T` is float or double. As a Reducer it is lse_reducer in base 2. Two pieces of a row, and the vectors that they
/// summed by their weights, merge by merge_factors(). The value is minus infinity if nothing was pushed, or minus
/// infinities alone; a NaN makes it NaN.
template <class T>
struct online_softmax {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>, "tessera: online_softmax takes float or double");

  using state_type = softmax_state<T>;
  using input_type = T;
  /// The softmax whose weigh() weigh_number() is the numbers of.
  using numbers_of = online_softmax;
  /// The reference is at most this far below the largest score; 2^64 * 2^20 keys * 448^2 fit fp32.
  static constexpr T lowest_reference = T{64};

  /// The factors of two weighted sums, so that they can be added.
  struct factors {
    T of_first;   ///< the factor of the first state's weighted sum
    T of_second;  ///< the factor of the second state's weighted sum
  };

  TESSERA_FN constexpr state_type identity() const {
    return {-static_cast<T>(infinity), -static_cast<T>(infinity), T{0}};
  }
  TESSERA_FN void push(state_type& state, input_type score) const { merge(state, {score, score, T{1}}); }

  /// Merges another state, and gives merge_factors() of the two.
  TESSERA_FN factors merge(state_type& into, state_type const& other) const {
    factors const by = merge_factors(into, other);
    into.sum = into.sum * by.of_first + other.sum * by.of_second;
    into.largest = max(into.largest, other.largest);
    into.reference = max(into.reference, other.reference);
    return by;
  }

  /// The factors by which merge() multiplies the sums of both states. Its caller multiplies its weighted sums by them.
  TESSERA_FN factors merge_factors(state_type const& first, state_type const& second) const {
    T const reference = max(first.reference, second.reference);
    return {detail::relative_power<detail::binary_power>(first.reference, reference),
            detail::relative_power<detail::binary_power>(second.reference, reference)};
  }

  /// Begins a piece of scores of which none is greater than `largest`. Gives the factor for weighted sums of earlier
  /// pieces; `sum` is multiplied by it already.
  TESSERA_FN T turn(state_type& state, T largest) const {
    state.largest = max(state.largest, largest);
    T const reference = max(state.largest - lowest_reference, largest);
    T const factor = detail::relative_power<detail::binary_power>(state.reference, reference);
    state.sum *= factor;
    state.reference = reference;
    return factor;
  }

  /// The weight of a score of the piece; 0 for minus infinity, NaN for NaN.
  TESSERA_FN T weight(state_type const& state, T score) const {
    bool const has_none = state.reference == -static_cast<T>(infinity);
    return detail::binary_power::of(score - (has_none ? T{0} : state.reference));
  }

  /// The weight of the score `scale` * `sum`, and its code where the largest weight, 1, has the quantizer's largest
  /// code. The weight is 0 if `sum` is minus infinity, whatever the scale is. It is the same in a sequence's first
  /// tile.
  template <ScaleQuantizer Q>
  TESSERA_FN weighed_code<typename Q::code_type, T> weigh(state_type const& state, T scale, T sum,
                                                          bool /*is_first*/) const {
    T const own = sum == -static_cast<T>(infinity) ? T{0} : weight(state, scale * sum);
    return {Q::encode_scaled(static_cast<float>(own), static_cast<float>(Q::highest)), own};
  }

  /// What weigh() gives as numbers, where neither a NaN nor a score of infinity takes part. Numbers of e4m3 are rounded
  /// by adding 1.5 2^20 times their power of two, which takes a sixth of the instructions.
  template <ScaleQuantizer Q>
  TESSERA_FN static weighed_number weigh_number(state_type const& state, float scale, float sum, bool /*is_first*/) {
    online_softmax const softmax;
    float const own = sum == -infinity ? 0.0F : static_cast<float>(softmax.weight(state, scale * sum));
    if constexpr (std::is_same_v<typename Q::code_type, float8_e4m3>) {
      float const all = own * static_cast<float>(Q::highest);
      float const power = maximum(bit_cast<float>(bit_cast<std::uint32_t>(all) & 0x7f800000U), 0x1p-6F);
      float const magic = power * 1572864.0F;  // its last bit is an eighth of `power`
      return {(all + magic) - magic, own};
    } else {
      auto const code = Q::encode_scaled(own, static_cast<float>(Q::highest));
      if constexpr (std::is_integral_v<typename Q::code_type>) {
        return {static_cast<float>(code), own};
      } else {
        return {static_cast<float>(load(code)), own};
      }
    }
  }

  /// The natural logarithm of the sum of 2^score.
  TESSERA_FN T value(state_type const& state) const {
    constexpr T ln2 = static_cast<T>(0.693147180559945309417232121458);
    if constexpr (std::is_same_v<T, float>) {
      return (state.reference + log2(state.sum)) * ln2;
    } else {
      return (state.reference + ::log2(state.sum)) * ln2;
    }
  }
};

static_assert(Reducer<online_softmax<float>>);

}  // namespace v0
}  // namespace tessera
