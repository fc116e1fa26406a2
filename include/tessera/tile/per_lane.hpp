// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `per_lane<T, Group>`: a variable of which each lane of a group has its own copy. It is an array when one thread
/// executes all lanes, and a register when each lane is a thread.
///
///     per_lane<float, Group> largest;
///     for (int lane : group) { largest[lane] = values(which, lane); }
///     float const top = maximum(group, largest);
///
/// `variable[lane]` is only for the lane that the loop visits: on a GPU a thread has no other lane's variable.
/// `each_index` gives each lane an element of an array.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// `Group::lanes_here` is how many lanes this thread plays, and `Group::slot(lane)` is the number of `lane` among them.
template <class T, class G>
struct per_lane {
  using value_type = T;

  T values[G::lanes_here];  ///< values of the lanes that this thread plays

  /// The value of the lane that the loop visits.
  TESSERA_FN constexpr T& operator[](int lane) { return values[G::slot(lane)]; }
  /// The value of the lane that the loop visits.
  TESSERA_FN constexpr T const& operator[](int lane) const { return values[G::slot(lane)]; }
};

/// Whether a lane is the one that acts for all: `if (is_first(lane)) { scratch.total = total; }`
[[nodiscard]] TESSERA_FN constexpr bool is_first(int lane) {
  return lane == 0;
}

/// Calls visit(i) for number i = which * Lanes + lane of each lane, where that is below `count`: for programs whose
/// lanes take an element each, group number `which` the next `Lanes` of them.
template <int Lanes, class G, class Visit>
TESSERA_FN void each_index(G const& group, std::int64_t which, std::int64_t count, Visit const& visit) {
  for (int lane : group) {
    std::int64_t const index = which * Lanes + lane;
    if (index < count) {
      visit(index);
    }
  }
}

/// How many bits of `mask` are set below bit `lane`: the rank of a lane among those that voted yes.
[[nodiscard]] TESSERA_FN constexpr int count_below(std::uint32_t mask, int lane) {
  std::uint32_t below = mask & ((std::uint32_t{1} << lane) - 1u);
  below = below - ((below >> 1) & 0x55555555u);
  below = (below & 0x33333333u) + ((below >> 2) & 0x33333333u);
  return static_cast<int>((((below + (below >> 4)) & 0x0f0f0f0fu) * 0x01010101u) >> 24);
}

/// How many neighbouring lanes are combined first. Every group combines in one order, so that sums of floats agree to
/// the last bit between executors: within each 32 neighbours, pairs at distance 16, 8, 4, 2, 1; then the results of the
/// 32s from first to last.
inline constexpr int lanes_in_a_warp = 32;

namespace detail {

struct plus {
  template <class T>
  TESSERA_FN constexpr T operator()(T const& a, T const& b) const {
    return static_cast<T>(a + b);
  }
};
struct larger {
  template <class T>
  TESSERA_FN constexpr T operator()(T const& a, T const& b) const {
    return a < b ? b : a;
  }
};
struct smaller {
  template <class T>
  TESSERA_FN constexpr T operator()(T const& a, T const& b) const {
    return b < a ? b : a;
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
