// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The K largest values with their indices, in whatever order partial results are merged: the top k of a row of logits.
///
///     tessera::largest_entries_reducer<2> reducer;
///     auto largest = reducer.identity();
///     for (std::int32_t i = 0; i < 4; ++i) { reducer.push(largest, {scores[i], i}); }
///     int const second = largest.of[1].index;          // -1 if there is no second one
#pragma once

#include <cstdint>

#include <tessera/concepts/reducer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/math.hpp>
#include <tessera/reduce/arg_max.hpp>

namespace tessera {
inline namespace v0 {

/// Values from the largest down; of equal ones that with the smaller index comes first. NaNs are left out. Infinities
/// are values as others, so that minus infinities come last. Where fewer than K values were pushed, or all others were
/// NaNs, the last have index -1 and the value minus infinity. An index is not negative, and is pushed once.
///
/// Cost: a comparison with the smallest of the K for each value, and K more for one that goes among them. The state has
/// 8 K bytes.
template <int K>
struct largest_entries_reducer {
  static_assert(K >= 1, "tessera: largest_entries_reducer keeps 1 entry or more");

  /// The number of entries.
  static constexpr int count = K;
  /// The K largest values so far.
  struct state_type {
    indexed_value<float> of[K];  ///< from the largest down
  };
  using input_type = indexed_value<float>;

  TESSERA_FN constexpr state_type identity() const {
    state_type none{};
    for (auto& entry : none.of) {
      entry = {-infinity, -1};
    }
    return none;
  }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const {
    if (is_before(value, state.of[K - 1])) {
      for (auto& entry : state.of) {  // the smaller of two goes on
        bool const goes_here = is_before(value, entry);
        input_type const behind = goes_here ? entry : value;
        entry = goes_here ? value : entry;
        value = behind;
      }
    }
  }
  TESSERA_FN constexpr void merge(state_type& into, state_type const& other) const {
    for (auto const& entry : other.of) {
      push(into, entry);
    }
  }

 private:
  /// -1, which means none, comes after all other indices.
  TESSERA_FN static constexpr bool is_before(input_type a, input_type b) {
    return a.value > b.value ||
           (a.value == b.value && static_cast<std::uint32_t>(a.index) < static_cast<std::uint32_t>(b.index));
  }
};

static_assert(Reducer<largest_entries_reducer<8>>);

}  // namespace v0
}  // namespace tessera
