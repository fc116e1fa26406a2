// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Rows of values and the states that reducers' push() makes of them, for tests of code that makes these states in
/// other ways.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/core/math.hpp>
#include <tessera/reduce/arg_max.hpp>
#include <tessera/reduce/entropy.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/paired.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/testing/generators.hpp>

namespace tessera_test {

/// A user's own reducer: the four largest values and their indices, the first of equal ones first, the number of
/// values, and how many were below -1/32. It knows nothing of rows; the four largest are no NaNs. With a log-sum-exp it
/// has 48 bytes of state.
struct top_four {
  struct state_type {
    tessera::indexed_value<float> best[4];
    std::int32_t count;
    std::int32_t below;
  };
  using input_type = tessera::indexed_value<float>;

  TESSERA_FN constexpr state_type identity() const {
    constexpr input_type none{-tessera::infinity, -1};
    return {{none, none, none, none}, 0, 0};
  }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const {
    ++state.count;
    state.below += value.value < -0.03125F ? 1 : 0;
    insert(state, value);
  }
  TESSERA_FN constexpr void merge(state_type& into, state_type const& other) const {
    into.count += other.count;
    into.below += other.below;
    for (input_type const& best : other.best) {
      insert(into, best);
    }
  }

 private:
  TESSERA_FN static constexpr void insert(state_type& state, input_type value) {
    for (input_type& best : state.best) {
      if (comes_before(value, best)) {
        input_type const next = best;
        best = value;
        value = next;
      }
    }
  }
  TESSERA_FN static constexpr bool comes_before(input_type const& a, input_type const& b) {
    bool const is_earlier = static_cast<std::uint32_t>(a.index) < static_cast<std::uint32_t>(b.index);
    return a.value > b.value || (a.value == b.value && is_earlier);
  }
};

/// A user's own reducer with a state of `Words` words: sums that depend on the columns alone, and are exact in any
/// order.
template <int Words>
struct many_sums {
  struct state_type {
    float sums[Words];
  };
  using input_type = tessera::indexed_value<float>;

  TESSERA_FN constexpr state_type identity() const { return {}; }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const {
    for (int i = 0; i < Words; ++i) {
      state.sums[i] += value.index % Words >= i ? 1.0F : 0.5F;
    }
  }
  TESSERA_FN constexpr void merge(state_type& into, state_type const& other) const {
    for (int i = 0; i < Words; ++i) {
      into.sums[i] += other.sums[i];
    }
  }
};

/// A user's own entropy with 12 bytes of state: sums of e = exp(x - largest) and of (x - largest) * e, whose rounding
/// depends on the order of values. NaNs and minus infinities add nothing.
struct pushed_entropy {
  struct state_type {
    float largest;
    float sum;
    float weighted;
  };
  using input_type = float;

  TESSERA_FN constexpr state_type identity() const { return {-tessera::infinity, 0.0F, 0.0F}; }
  TESSERA_FN void push(state_type& state, input_type value) const {
    if (value > state.largest) {
      move(state, value);
    }
    if (value > -tessera::infinity) {
      float const below = value - state.largest;
      float const weight = tessera::exp(below);
      state.sum += weight;
      state.weighted += below * weight;
    }
  }
  TESSERA_FN void merge(state_type& into, state_type const& other) const {
    state_type from = other;
    float const largest = into.largest > from.largest ? into.largest : from.largest;
    move(into, largest);
    move(from, largest);
    into.sum += from.sum;
    into.weighted += from.weighted;
  }

 private:
  TESSERA_FN static void move(state_type& state, float largest) {
    if (state.sum > 0.0F) {
      float const below = state.largest - largest;
      float const factor = tessera::exp(below);
      state.weighted = factor == 0.0F ? 0.0F : factor * (state.weighted + below * state.sum);  // never 0 * infinity
      state.sum *= factor;
    }
    state.largest = largest;
  }
};

/// Rows of about 1 to 400 values: usual, equal and large ones, rows with NaNs and infinities, and rows of these alone.
inline std::vector<std::vector<float>> awkward_rows() {
  constexpr float none = -tessera::infinity;
  std::vector<std::vector<float>> rows;
  for (std::size_t const size : {1U, 2U, 7U, 8U, 63U, 64U, 65U, 191U, 192U, 193U, 400U}) {
    std::vector<float> row;
    for (std::size_t i = 0; i < size; ++i) {
      row.push_back(4.0F * tessera::testing::gauss().value(size, i));
    }
    rows.push_back(row);
    for (float const special : {NAN, tessera::infinity, none, 3e38F, -3e38F, 1e10F, -1e10F, 3e7F, 90.0F}) {
      rows.push_back(row);
      rows.back()[size / 3] = special;
      rows.back()[size - 1] = special;
    }
    rows.push_back(row);
    rows.back()[size / 2] = NAN;
    rows.back()[size - 1] = tessera::infinity;
    rows.push_back(std::vector<float>(size, none));
    rows.push_back(std::vector<float>(size, NAN));
    rows.push_back(std::vector<float>(size, tessera::infinity));
    rows.push_back(std::vector<float>(size, -2.5F));
    rows.push_back(row);
    for (std::size_t i = 0; i < size; i += 2) {
      rows.back()[i] = none;
    }
  }
  return rows;
}

/// A row's state, made by push().
template <class R>
typename R::state_type pushed(std::vector<float> const& row, float scale) {
  R const reducer;
  auto state = reducer.identity();
  for (std::size_t i = 0; i < row.size(); ++i) {
    push_indexed(reducer, state, tessera::indexed_value<float>{row[i] * scale, static_cast<std::int32_t>(i)});
  }
  return state;
}

inline std::string difference_of_values(char const* what, float found, float expected, float tolerance) {
  bool const same = std::isnan(found)
                        ? std::isnan(expected)
                        : found == expected || std::fabs(found - expected) <= tolerance * (1.0F + std::fabs(expected));
  return same ? "" : std::string(what) + " is " + std::to_string(found) + " and not " + std::to_string(expected);
}

/// The difference of two states in words; empty if there is none. Slack: the factor on what rounding of states alone
/// causes.
template <class R>
std::string difference_of(typename R::state_type const& found, typename R::state_type const& expected,
                          float slack = 1.0F) {
  R const reducer;
  if constexpr (std::is_same_v<R, tessera::lse_reducer<float>>) {
    return difference_of_values("log-sum-exp", reducer.value(found), reducer.value(expected), 2e-6F * slack);
  } else if constexpr (std::is_same_v<R, tessera::entropy_reducer<float>>) {
    std::string const sum =
        difference_of_values("log-sum-exp", reducer.value(found), reducer.value(expected), 2e-6F * slack);
    // The sums of 192 exponentials times exponents were rounded at each step.
    return sum.empty()
               ? difference_of_values("entropy", reducer.entropy(found), reducer.entropy(expected), 2e-5F * slack)
               : sum;
  } else if constexpr (std::is_same_v<R, tessera::sum_reducer<float>>) {
    return difference_of_values("sum", found, expected, 2e-5F * slack);
  } else if constexpr (std::is_same_v<R, tessera::arg_max_reducer<float>>) {
    std::string const index = found.index == expected.index ? ""
                                                            : "index " + std::to_string(found.index) + " and not " +
                                                                  std::to_string(expected.index);
    return index.empty() ? difference_of_values("largest", found.value, expected.value, 1e-6F * slack) : index;
  } else if constexpr (std::is_same_v<R, top_four>) {
    for (int i = 0; i < 4; ++i) {
      std::string const text = difference_of<tessera::arg_max_reducer<float>>(found.best[i], expected.best[i], slack);
      if (!text.empty()) {
        return "of the top four number " + std::to_string(i) + ": " + text;
      }
    }
    return found.count == expected.count && found.below == expected.below
               ? ""
               : std::to_string(found.count) + " values, " + std::to_string(found.below) + " below -1/32, and not " +
                     std::to_string(expected.count) + " and " + std::to_string(expected.below);
  } else if constexpr (std::is_same_v<R, pushed_entropy>) {
    std::string const largest = difference_of_values("largest", found.largest, expected.largest, 1e-6F * slack);
    std::string const sum = difference_of_values("sum", found.sum, expected.sum, 2e-5F * slack);
    std::string const weighted = difference_of_values("weighted sum", found.weighted, expected.weighted, 5e-5F * slack);
    return !largest.empty() ? largest : !sum.empty() ? sum : weighted;
  } else if constexpr (requires { typename R::first_type; }) {
    std::string const first = difference_of<typename R::first_type>(found.first, expected.first, slack);
    return first.empty() ? difference_of<typename R::second_type>(found.second, expected.second, slack) : first;
  } else {
    for (std::size_t i = 0; i < sizeof(found.sums) / sizeof(float); ++i) {
      if (found.sums[i] != expected.sums[i]) {
        return "sum " + std::to_string(i) + " is " + std::to_string(found.sums[i]) + " and not " +
               std::to_string(expected.sums[i]);
      }
    }
    return "";
  }
}

}  // namespace tessera_test
