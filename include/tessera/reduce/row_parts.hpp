// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Split and merge of a row of attention whose keys are divided among lanes, warps or thread blocks. `row_part` is what
/// one of them knows of the row: the softmax's state, and sums of values by its weights. `part_reducer` is the Reducer
/// that merges them, in order; `merge_parts` merges some at once, relative to the largest of their references, by one
/// exponential each. settle_parts (tile/rows/settle_parts.hpp) is the same where lanes hold the parts.
///
///     using softmax = tessera::online_softmax<float>;
///     using part = tessera::row_part<softmax::state_type, 2>;       // with two channels of the values
///     using reducer = tessera::part_reducer<softmax, part>;
///     part all = reducer{}.identity();
///     for (part const& one : parts) { reducer{}.merge(all, one); }  // or, of four:
///     all = tessera::merge_parts<4>(reducer{}, [&](int i) { return parts[i]; });
///     float const mean = all.values[0] / all.state.sum;
///
/// Both give the row of all keys, up to rounding, and add in the order of the parts. A part without keys is
/// identity(): its sums are 0 and its reference is minus infinity, as that of a row whose scores all are. A sum that is
/// NaN makes the row's NaN; references are never NaN.
#pragma once

#include <tessera/concepts/reducer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>

namespace tessera {
inline namespace v0 {

/// A part of a row of weighted values. State: of a softmax. A user's own type of part has these members, too.
template <class State, int Values>
struct row_part {
  static constexpr int count = Values;  ///< weighted sums besides the state's own sum of weights

  State state;           ///< the softmax's state
  float values[Values];  ///< sums of values by weights

  /// The weighted sum number `i`.
  TESSERA_FN constexpr float& value(int i) { return values[i]; }
  /// The weighted sum number `i`.
  TESSERA_FN constexpr float const& value(int i) const { return values[i]; }
};
/// A part whose weighted values are elsewhere.
template <class State>
struct row_part<State, 0> {
  static constexpr int count = 0;  ///< there are no weighted sums

  State state;  ///< the softmax's state
};

namespace detail {

/// Whether a softmax's state has the largest score besides its reference.
template <class State>
inline constexpr bool has_largest = requires(State const& state) {
  state.largest;
};

/// What sums of parts can be relative to: a reference, and the largest score if the softmax's state has it.
template <class State>
struct part_reach {
  float of[has_largest<State> ? 2 : 1];
};
/// All sums of a part: of the weights, and of weighted values.
template <class Part>
struct part_sums {
  float of[1 + Part::count];
};

/// Finds the reach of parts: of all that they say, the largest.
template <class Part>
struct part_reach_reducer {
  using state_type = part_reach<decltype(Part::state)>;
  using input_type = Part;
  static constexpr bool any_order = true;
  static constexpr bool has_both = has_largest<decltype(Part::state)>;

  TESSERA_FN constexpr state_type identity() const {
    state_type nothing{};
    for (float& one : nothing.of) {
      one = -infinity;
    }
    return nothing;
  }
  TESSERA_FN constexpr void push(state_type& state, Part const& part) const {
    state.of[0] = maximum(state.of[0], part.state.reference);
    if constexpr (has_both) {
      state.of[1] = maximum(state.of[1], part.state.largest);
    }
  }
  TESSERA_FN constexpr void merge(state_type& into, state_type const& other) const {
    for (int i = 0; i < (has_both ? 2 : 1); ++i) {
      into.of[i] = maximum(into.of[i], other.of[i]);
    }
  }
};
/// Adds up sums that are relative to the same reference.
template <class Part>
struct part_sums_reducer {
  using state_type = part_sums<Part>;
  using input_type = part_sums<Part>;

  TESSERA_FN constexpr state_type identity() const { return state_type{}; }
  TESSERA_FN constexpr void push(state_type& state, state_type const& other) const { merge(state, other); }
  TESSERA_FN constexpr void merge(state_type& into, state_type const& other) const {
    for (int i = 0; i < 1 + Part::count; ++i) {
      into.of[i] += other.of[i];
    }
  }
};

}  // namespace detail

/// Softmax: an AttentionSoftmax, or a Reducer with merge() and merge_factors() as online_softmax has them; it may have
/// factor(part, whole), merge_factors().of_first where the second state's reference is not the smaller one. Part: a
/// row_part, or another type with its members.
template <class Softmax, class Part>
struct part_reducer {
  using state_type = Part;
  using input_type = Part;                                 ///< a part is pushed as it is merged
  using factors = typename Softmax::factors;               ///< what weighted sums of both are multiplied by
  using reach_reducer = detail::part_reach_reducer<Part>;  ///< finds what sums of several parts can be relative to
  using sums_reducer = detail::part_sums_reducer<Part>;    ///< adds up sums that are relative to the same reference

  TESSERA_FN constexpr state_type identity() const {
    state_type nothing{};
    nothing.state = Softmax{}.identity();
    return nothing;
  }
  TESSERA_FN void push(state_type& state, input_type const& part) const { merge(state, part); }

  /// Merges another part. Returns the factors that weighted sums which lie elsewhere are to be multiplied by.
  TESSERA_FN factors merge(state_type& into, state_type const& other) const {
    factors const by = Softmax{}.merge(into.state, other.state);
    if constexpr (Part::count > 0) {
      for (int i = 0; i < Part::count; ++i) {
        into.value(i) = into.value(i) * by.of_first + other.value(i) * by.of_second;
      }
    }
    return by;
  }

  /// A part whose sums are 0, relative to what suits all parts of `reach`.
  TESSERA_FN constexpr state_type begin(typename reach_reducer::state_type const& reach) const {
    state_type whole = identity();
    whole.state.reference = reach.of[0];
    if constexpr (reach_reducer::has_both) {
      whole.state.largest = reach.of[1];
    }
    return whole;
  }
  /// What sums of a part are multiplied by to be relative to the reference of `whole`, which is not less.
  TESSERA_FN float factor(state_type const& part, state_type const& whole) const {
    if constexpr (requires { Softmax{}.factor(part.state, whole.state); }) {
      return Softmax{}.factor(part.state, whole.state);
    } else {
      return Softmax{}.merge_factors(part.state, whole.state).of_first;
    }
  }
  /// Adds the sums of a part, of which `by` is the factor().
  TESSERA_FN constexpr void add(state_type& whole, state_type const& part, float by) const {
    whole.state.sum += part.state.sum * by;
    if constexpr (Part::count > 0) {
      for (int i = 0; i < Part::count; ++i) {
        whole.value(i) += part.value(i) * by;
      }
    }
  }

  /// The sums of a part.
  TESSERA_FN constexpr typename sums_reducer::state_type sums_of(state_type const& part) const {
    typename sums_reducer::state_type sums{};
    sums.of[0] = part.state.sum;
    if constexpr (Part::count > 0) {
      for (int i = 0; i < Part::count; ++i) {
        sums.of[1 + i] = part.value(i);
      }
    }
    return sums;
  }
  /// Replaces the sums of a part.
  TESSERA_FN constexpr void set_sums(state_type& part, typename sums_reducer::state_type const& sums) const {
    part.state.sum = sums.of[0];
    if constexpr (Part::count > 0) {
      for (int i = 0; i < Part::count; ++i) {
        part.value(i) = sums.of[1 + i];
      }
    }
  }
};

/// A part whose sums are 0, relative to the largest of the references of part(0) to part(count - 1).
template <PartReducer R, class Part>
TESSERA_FN typename R::state_type begin_parts(R const& reducer, int count, Part const& part) {
  typename R::reach_reducer const reaches;
  auto reach = reaches.identity();
  for (int i = 0; i < count; ++i) {
    reaches.push(reach, part(i));
  }
  return reducer.begin(reach);
}

/// Merges part(0) to part(count - 1), which is called twice for each. The row is relative to the largest of their
/// references, and sums are added in the order of parts. `weigh(i, factor)` is called in this order with what sums of
/// part i that lie elsewhere are to be multiplied by.
template <PartReducer R, class Part, class Weigh>
TESSERA_FN typename R::state_type merge_parts(R const& reducer, int count, Part const& part, Weigh const& weigh) {
  typename R::state_type whole = begin_parts(reducer, count, part);
  for (int i = 0; i < count; ++i) {
    typename R::state_type const one = part(i);
    float const factor = reducer.factor(one, whole);
    reducer.add(whole, one, factor);
    weigh(i, factor);
  }
  return whole;
}
/// Merges `Count` parts, all sums of which are in them.
template <int Count, PartReducer R, class Part>
TESSERA_FN typename R::state_type merge_parts(R const& reducer, Part const& part) {
  return merge_parts(reducer, Count, part, [](int, float) {});
}

}  // namespace v0
}  // namespace tessera
