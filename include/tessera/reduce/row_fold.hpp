// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `row_fold`: makes a Reducer's state from rows of values that lanes hold in registers, with fewer instructions than
/// push() takes. The largest value of a row is found first, and exponentials relative to it are computed once for all
/// Reducers that need them.
///
///     using fold = row_fold<paired_reducer<entropy_reducer<float>, arg_max_reducer<float>>>;
///     fold::part all;                                       // of some values of a row
///     for (row_value const& value : values) { fold::take(all, value); }
///     fold::settle(all, coordinate);                        // once
///     fold::join(all, other);                               // with that of other values; commutes
///     auto const state = fold::finish(all, facts_of_row(largest, scale, sum_of_exponentials, is_far, power));
///
/// There are specialisations for lse_reducer<float>, entropy_reducer<float>, arg_max_reducer<float>, sum_reducer<float>
/// and pairs; users may add some for their own Reducers. For any other Reducer the part is empty, and the caller must
/// call its push() for each value. Results are those of push(), up to rounding: exponents are in units of log 2,
/// relative to a reference that is rounded alike for the whole row, and finish() corrects for that rounding.
///
/// `Power` is everywhere the type of a function that returns 2 to a power.
#pragma once

#include <cstdint>

#include <tessera/concepts/reducer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/math.hpp>
#include <tessera/reduce/arg_max.hpp>
#include <tessera/reduce/entropy.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/paired.hpp>
#include <tessera/reduce/sum.hpp>

namespace tessera {
inline namespace v0 {

/// The columns of a lane's values, and the scale of values.
struct row_coordinate {
  std::int32_t column;  ///< column of the lane's first value
  std::int32_t end;     ///< columns from here on do not exist
  float scale;          ///< what values are multiplied by; positive
};

/// A value of a row, in the lane that holds it. Columns that do not exist hold minus infinity.
struct row_value {
  float value;          ///< the value before it is multiplied by the scale
  float largest;        ///< the largest of the row's values; NaNs are passed over
  float exponent;       ///< (value - largest) * scale * log2(e), up to `row_facts::error`
  float exponential;    ///< 2 to the exponent
  std::int32_t column;  ///< column, counted from the lane's first; grows from value to value
  bool is_there;        ///< whether the column exists; true for all unless the fold uses_bounds
};

/// What is known of a row when all of its values have been taken.
struct row_facts {
  float largest;     ///< the largest value, times the scale
  float scaled;      ///< sum of exponentials relative to the largest value
  float raw;         ///< the sum of the exponentials that were seen
  float error;       ///< how much too large the exponents that were seen are
  float correction;  ///< 2^-error
  float scale;       ///< what values are multiplied by
};

/// The reference of a row's exponents, in units of log 2: the largest value, rounded. `steepness`: the scale times
/// log2(e).
TESSERA_FN inline float reference_of_row(float largest, float steepness) {
  return largest == -infinity ? 0.0F : largest * steepness;
}

/// Whether a row's largest value is so far from 0, or infinite, that rounding the reference would make exponentials
/// overflow.
TESSERA_FN inline bool is_far_row(float largest, float steepness) {
  return largest > -infinity && absolute(largest * steepness) >= static_cast<float>(1 << 25);
}

/// The exponent of a value in a row that is_far_row(): it takes one instruction more, and no rounded reference. Plus
/// infinities have exponentials of 1, and other values beside them 0; only a NaN gives a NaN.
TESSERA_FN inline float far_exponent(float value, float largest, float steepness) {
  return value == largest ? 0.0F : (value - largest) * steepness;
}

/// The facts of a row whose values have been taken. `largest`: the largest value before it is multiplied by the scale.
/// `raw`: the sum of 2^exponent. `is_far`: exponents are those of far_exponent().
template <class Power>
TESSERA_FN row_facts facts_of_row(float largest, float scale, float raw, bool is_far, Power const& power) {
  constexpr float log2_e = 1.442695041F;
  row_facts row{largest * scale, raw, raw, 0.0F, 1.0F, scale};
  if (largest > -infinity && !is_far) {
    float const steepness = scale * log2_e;
    row.error = multiply_add(largest, steepness, -(largest * steepness));
    row.correction = power(-row.error);
    row.scaled = raw * row.correction;
    row.scaled = row.scaled < 1.0F ? 1.0F : row.scaled;
  }
  return row;
}

/// The common base of specialisations that need no push().
struct known_row_fold {
  static constexpr bool is_pushed = false;          ///< whether values are to be pushed, besides
  static constexpr bool uses_exponentials = false;  ///< whether exponents and exponentials are to be made
  static constexpr bool uses_bounds = false;        ///< whether row_value::is_there is to be set

  /// Replaces `kept` by `total`, which add() has made of a copy of it.
  template <class State>
  TESSERA_FN static void keep(State& kept, State const& total) {
    kept = total;
  }
};

/// The fold of a Reducer without a specialisation: its state comes by push().
template <Reducer R>
struct row_fold {
  static constexpr bool is_pushed = true;
  static constexpr bool uses_exponentials = false;
  static constexpr bool uses_bounds = false;
  using state_type = typename R::state_type;
  struct part {};

  TESSERA_FN static void take(part&, row_value const&) {}
  TESSERA_FN static void settle(part&, row_coordinate const&) {}
  TESSERA_FN static void join(part&, part const&) {}
  TESSERA_FN static state_type finish(part const&, row_facts const&) { return R{}.identity(); }
  /// Adds a state that finish() has made: nothing, because pushed values are in `into` already.
  template <class Power>
  TESSERA_FN static void add(state_type&, state_type const&, Power const&) {}
  TESSERA_FN static void keep(state_type&, state_type const&) {}
  /// Merges another state into `into`.
  template <class Power>
  TESSERA_FN static void merge(state_type& into, state_type const& other, Power const&) {
    R{}.merge(into, other);
  }
};

/// The fold of log-sum-exps, which needs only the sums of exponentials.
template <>
struct row_fold<lse_reducer<float>> : known_row_fold {
  static constexpr bool uses_exponentials = true;
  using state_type = scaled_exponentials<float>;
  struct part {};

  TESSERA_FN static void take(part&, row_value const&) {}
  TESSERA_FN static void settle(part&, row_coordinate const&) {}
  TESSERA_FN static void join(part&, part const&) {}
  TESSERA_FN static state_type finish(part const&, row_facts const& row) { return {row.largest, row.scaled}; }
  template <class Power>
  TESSERA_FN static void add(state_type& into, state_type const& found, Power const& power) {
    merge(into, found, power);
  }
  /// Merges as lse_reducer does, with one exponential. The relation of equal infinities is 1.
  template <class Power>
  TESSERA_FN static void merge(state_type& into, state_type const& other, Power const& power) {
    constexpr float log2_e = 1.442695041F;
    float const largest = maximum(into.largest, other.largest);
    float const lesser = minimum(into.largest, other.largest);
    float const relation = lesser == largest ? 1.0F : power((lesser - largest) * log2_e);
    into = {largest, into.largest >= other.largest ? multiply_add(other.scaled, relation, into.scaled)
                                                   : multiply_add(into.scaled, relation, other.scaled)};
  }
};

/// The fold of entropies, which also needs the sum of exponentials times their exponents.
template <>
struct row_fold<entropy_reducer<float>> : known_row_fold {
  static constexpr bool uses_exponentials = true;
  using state_type = weighted_exponentials<float>;
  struct part {
    float weighted = 0.0F;  ///< sum of exponent * exponential
  };

  TESSERA_FN static void take(part& lane, row_value const& value) {
    constexpr float no_infinity = -1000.0F;  // instead of minus infinity, so that exponent * 0 is 0
    lane.weighted = multiply_add(maximum(value.exponent, no_infinity), value.exponential, lane.weighted);
  }
  TESSERA_FN static void settle(part&, row_coordinate const&) {}
  TESSERA_FN static void join(part& into, part const& other) { into.weighted += other.weighted; }
  TESSERA_FN static state_type finish(part const& all, row_facts const& row) {
    constexpr float log_2 = 0.6931471806F;
    float const weighted = log_2 * row.correction * (all.weighted - row.error * row.raw);
    return {row.largest, row.scaled, weighted > 0.0F ? 0.0F : weighted};
  }
  template <class Power>
  TESSERA_FN static void add(state_type& into, state_type const& found, Power const&) {
    entropy_reducer<float>{}.merge(into, found);
  }
  template <class Power>
  TESSERA_FN static void merge(state_type& into, state_type const& other, Power const&) {
    entropy_reducer<float>{}.merge(into, other);
  }
};

/// The fold of arg_max_reducer, which finds the first column whose value is the largest.
template <>
struct row_fold<arg_max_reducer<float>> : known_row_fold {
  using state_type = indexed_value<float>;
  struct part {
    std::int32_t index = -1;  ///< column, counted from the lane's first, and from the row's once settled; -1: none
  };

  TESSERA_FN static void take(part& lane, row_value const& value) {
    lane.index = value.value == value.largest && lane.index < 0 ? value.column : lane.index;
  }
  TESSERA_FN static void settle(part& lane, row_coordinate const& coordinate) {
    std::int32_t const column = coordinate.column + lane.index;
    lane.index = lane.index >= 0 && column < coordinate.end ? column : -1;
  }
  /// Keeps the earlier column; -1, which means none, comes after all others.
  TESSERA_FN static void join(part& into, part const& other) {
    into.index =
        static_cast<std::int32_t>(min(static_cast<std::uint32_t>(into.index), static_cast<std::uint32_t>(other.index)));
  }
  TESSERA_FN static state_type finish(part const& all, row_facts const& row) {
    return {all.index < 0 ? -infinity : row.largest, all.index};
  }
  template <class Power>
  TESSERA_FN static void add(state_type& into, state_type const& found, Power const&) {
    arg_max_reducer<float>{}.merge(into, found);
  }
  template <class Power>
  TESSERA_FN static void merge(state_type& into, state_type const& other, Power const&) {
    arg_max_reducer<float>{}.merge(into, other);
  }
};

/// The fold of sums, which leaves out columns that do not exist.
template <>
struct row_fold<sum_reducer<float>> : known_row_fold {
  static constexpr bool uses_bounds = true;
  using state_type = float;
  struct part {
    float sum = 0.0F;  ///< the sum before it is multiplied by the scale
  };

  TESSERA_FN static void take(part& lane, row_value const& value) { lane.sum += value.is_there ? value.value : 0.0F; }
  TESSERA_FN static void settle(part&, row_coordinate const&) {}
  TESSERA_FN static void join(part& into, part const& other) { into.sum += other.sum; }
  TESSERA_FN static state_type finish(part const& all, row_facts const& row) { return all.sum * row.scale; }
  template <class Power>
  TESSERA_FN static void add(state_type& into, state_type found, Power const&) {
    into += found;
  }
  template <class Power>
  TESSERA_FN static void merge(state_type& into, state_type other, Power const&) {
    into += other;
  }
};

/// The fold of a pair: each of the two Reducers by its own fold.
template <class First, class Second>
struct row_fold<paired_reducer<First, Second>> {
  using first_fold = row_fold<First>;    ///< the fold of `First`
  using second_fold = row_fold<Second>;  ///< the fold of `Second`
  static constexpr bool is_pushed = first_fold::is_pushed || second_fold::is_pushed;
  static constexpr bool uses_exponentials = first_fold::uses_exponentials || second_fold::uses_exponentials;
  static constexpr bool uses_bounds = first_fold::uses_bounds || second_fold::uses_bounds;
  using state_type = typename paired_reducer<First, Second>::state_type;
  /// The parts of both folds; empty where both are.
  struct part {
    [[no_unique_address]] typename first_fold::part first;    ///< for `First`
    [[no_unique_address]] typename second_fold::part second;  ///< for `Second`
  };

  TESSERA_FN static void take(part& lane, row_value const& value) {
    first_fold::take(lane.first, value);
    second_fold::take(lane.second, value);
  }
  TESSERA_FN static void settle(part& lane, row_coordinate const& coordinate) {
    first_fold::settle(lane.first, coordinate);
    second_fold::settle(lane.second, coordinate);
  }
  TESSERA_FN static void join(part& into, part const& other) {
    first_fold::join(into.first, other.first);
    second_fold::join(into.second, other.second);
  }
  TESSERA_FN static state_type finish(part const& all, row_facts const& row) {
    return {first_fold::finish(all.first, row), second_fold::finish(all.second, row)};
  }
  template <class Power>
  TESSERA_FN static void add(state_type& into, state_type const& found, Power const& power) {
    first_fold::add(into.first, found.first, power);
    second_fold::add(into.second, found.second, power);
  }
  TESSERA_FN static void keep(state_type& kept, state_type const& total) {
    first_fold::keep(kept.first, total.first);
    second_fold::keep(kept.second, total.second);
  }
  template <class Power>
  TESSERA_FN static void merge(state_type& into, state_type const& other, Power const& power) {
    first_fold::merge(into.first, other.first, power);
    second_fold::merge(into.second, other.second, power);
  }
};

}  // namespace v0
}  // namespace tessera
