// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `serial_group<N>`: a group whose N lanes are executed by one thread of the host, one after the other.
///
///     serial_group<32> group;
///     per_lane<int, serial_group<32>> odd;
///     for (int lane : group) { odd[lane] = lane & 1; }
///     int const sixteen = sum(group, odd);
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/status.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

/// A number that a range-for loop counts up.
struct lane_iterator {
  int lane;  ///< the number
  TESSERA_FN constexpr int operator*() const { return lane; }
  TESSERA_FN constexpr lane_iterator& operator++() {
    ++lane;
    return *this;
  }
  TESSERA_FN constexpr bool operator!=(lane_iterator other) const { return lane != other.lane; }
};

/// A group of lanes that one thread plays one after the other.
template <int Lanes>
struct serial_group {
  static_assert(Lanes >= 1 && Lanes <= 1024, "tessera: a group has 1 to 1024 lanes");
  static constexpr int size = Lanes;
  static constexpr tessera::architecture architecture = tessera::architecture::host;
  static constexpr int lanes_here = Lanes;
  [[nodiscard]] static TESSERA_FN constexpr int slot(int lane) { return lane; }

  [[nodiscard]] TESSERA_FN constexpr lane_iterator begin() const { return {0}; }
  [[nodiscard]] TESSERA_FN constexpr lane_iterator end() const { return {Lanes}; }
  TESSERA_FN constexpr void sync() const {}
  /// Adds to an integer in scratch or in global memory while other groups may do the same; gives the value before.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // host only, called from code for both sides
#endif
  template <class T>
  TESSERA_FN T atomic_add(T& target, std::type_identity_t<T> value) const {
    return __atomic_fetch_add(&target, value, __ATOMIC_RELAXED);
  }
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // host only, called from code for both sides
#endif
  TESSERA_FN void report(status_word* word, status_code code, std::int64_t position, status_detail detail = {}) const {
    detail::report_on_host(word, code, position, detail);
  }
};

/// Whether a group is a serial_group, so that one loop may do the work of all lanes.
template <class G>
inline constexpr bool is_serial_group = false;
/// It is one.
template <int Lanes>
inline constexpr bool is_serial_group<serial_group<Lanes>> = true;

namespace detail {

/// Combines all lanes in the order that `lanes_in_a_warp` documents.  `at(i)` gives the value of lane i.
template <int Lanes, class T, class Combine>
[[nodiscard]] TESSERA_FN constexpr T reduce_lanes(T const* values, Combine combine) {
  constexpr int width = Lanes < lanes_in_a_warp ? Lanes : lanes_in_a_warp;
  static_assert((width & (width - 1)) == 0 && Lanes % width == 0,
                "tessera: a group that reduces has 1, 2, 4, 8, 16 lanes or a multiple of 32");
  T total{};
  for (int first = 0; first < Lanes; first += width) {
    T partial[width]{};
    for (int i = 0; i < width; ++i) {
      partial[i] = values[first + i];
    }
    for (int distance = width / 2; distance > 0; distance /= 2) {
      for (int i = 0; i < distance; ++i) {
        partial[i] = combine(partial[i], partial[i + distance]);
      }
    }
    total = first == 0 ? partial[0] : combine(total, partial[0]);
  }
  return total;
}

}  // namespace detail

/// All lanes' values combined by an associative `combine(a, b)`, in a fixed order.  Every lane gets the result.
template <int Lanes, class T, class Combine>
[[nodiscard]] TESSERA_FN constexpr T reduce(serial_group<Lanes> const&, per_lane<T, serial_group<Lanes>> const& values,
                                            Combine combine) {
  return detail::reduce_lanes<Lanes>(values.values, combine);
}

template <int Lanes, class T>
[[nodiscard]] TESSERA_FN constexpr T sum(serial_group<Lanes> const& group,
                                         per_lane<T, serial_group<Lanes>> const& values) {
  return reduce(group, values, detail::plus{});
}
template <int Lanes, class T>
[[nodiscard]] TESSERA_FN constexpr T maximum(serial_group<Lanes> const& group,
                                             per_lane<T, serial_group<Lanes>> const& values) {
  return reduce(group, values, detail::larger{});
}
template <int Lanes, class T>
[[nodiscard]] TESSERA_FN constexpr T minimum(serial_group<Lanes> const& group,
                                             per_lane<T, serial_group<Lanes>> const& values) {
  return reduce(group, values, detail::smaller{});
}

/// Replaces each lane's value by the sum of the lanes below it; gives the sum of all.  Integers only.
template <int Lanes, class T>
TESSERA_FN constexpr T exclusive_sum(serial_group<Lanes> const&, per_lane<T, serial_group<Lanes>>& values) {
  static_assert(std::is_integral_v<T>, "tessera: exclusive_sum takes integers, whose sums have no order");
  T below{};
  for (int lane = 0; lane < Lanes; ++lane) {
    T const mine = values.values[lane];
    values.values[lane] = below;
    below = static_cast<T>(below + mine);
  }
  return below;
}

/// The value of lane `source`, for all lanes.
template <int Lanes, class T>
[[nodiscard]] TESSERA_FN constexpr T broadcast(serial_group<Lanes> const&,
                                               per_lane<T, serial_group<Lanes>> const& values, int source) {
  return values.values[source];
}

template <int Lanes>
[[nodiscard]] TESSERA_FN constexpr bool any(serial_group<Lanes> const&,
                                            per_lane<bool, serial_group<Lanes>> const& votes) {
  for (bool vote : votes.values) {
    if (vote) {
      return true;
    }
  }
  return false;
}

template <int Lanes>
[[nodiscard]] TESSERA_FN constexpr bool all(serial_group<Lanes> const&,
                                            per_lane<bool, serial_group<Lanes>> const& votes) {
  for (bool vote : votes.values) {
    if (!vote) {
      return false;
    }
  }
  return true;
}

/// Bit i of the result is the vote of lane i.  For groups of at most 32 lanes.
template <int Lanes>
[[nodiscard]] TESSERA_FN constexpr std::uint32_t ballot(serial_group<Lanes> const&,
                                                        per_lane<bool, serial_group<Lanes>> const& votes) {
  static_assert(Lanes <= lanes_in_a_warp, "tessera: ballot gives one bit for each of at most 32 lanes");
  std::uint32_t mask = 0;
  for (int lane = 0; lane < Lanes; ++lane) {
    mask |= static_cast<std::uint32_t>(votes.values[lane]) << lane;
  }
  return mask;
}

/// How many lanes below `lane` have their bit set in `mask`.
template <int Lanes>
[[nodiscard]] TESSERA_FN constexpr int count_below(serial_group<Lanes> const&, std::uint32_t mask, int lane) {
  return count_below(mask, lane);
}

}  // namespace v0
}  // namespace tessera
