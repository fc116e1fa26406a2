// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `compare_heads` and `finish_comparison`: measure how far two tensors of heads are apart, in double and in a fixed
/// order of additions.
#pragma once

#include <cstdint>
#include <math.h>  // not <cmath>: the global names are those that nvcc has on both sides

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// Sums over some elements; a is an element of the one tensor, b of the other.
struct comparison_sums {
  double products;  ///< sum of a b
  double first;     ///< sum of a a
  double second;    ///< sum of b b
  double apart;     ///< sum of |a - b|
  double size;      ///< sum of |b|

  /// Takes in one element of each tensor.
  TESSERA_FN constexpr void take(double a, double b) {
    products += a * b;
    first += a * a;
    second += b * b;
    apart += a < b ? b - a : a - b;
    size += b < 0 ? -b : b;
  }
};

namespace detail {

/// The total of one of the sums over all lanes, which all lanes get.
template <Group G>
TESSERA_FN double sum_of_lanes(G const& group, per_lane<comparison_sums, G> const& own, double comparison_sums::*part) {
  per_lane<double, G> one;
  for (int lane : group) {
    one[lane] = own[lane].*part;
  }
  return sum(group, one);
}

/// The totals of all sums. Each is made on its own, because lanes exchange at most 32 bytes at a time.
template <Group G>
TESSERA_FN comparison_sums sum_of_lanes(G const& group, per_lane<comparison_sums, G> const& own) {
  double const products = sum_of_lanes(group, own, &comparison_sums::products);
  double const first = sum_of_lanes(group, own, &comparison_sums::first);
  double const second = sum_of_lanes(group, own, &comparison_sums::second);
  double const apart = sum_of_lanes(group, own, &comparison_sums::apart);
  double const size = sum_of_lanes(group, own, &comparison_sums::size);
  return {products, first, second, apart, size};
}

}  // namespace detail

/// Makes the sums of elements. A group takes 8192 elements in row-major order.
template <class T, class Better>
struct compare_heads {
  static constexpr int lanes = 128;
  static constexpr std::int64_t elements = 64 * lanes;  ///< elements that a group takes
  struct scratch_type {};

  head_view<T const> found;          ///< sequences x heads x tokens x channels
  head_view<Better const> expected;  ///< sequences x heads x tokens x channels
  array_view<comparison_sums> sums;  ///< one for each group

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(found.size(), elements); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const end = min((which + 1) * elements, found.size());
    per_lane<comparison_sums, G> own;
    for (int lane : group) {
      own[lane] = comparison_sums{};
      for (std::int64_t i = which * elements + lane; i < end; i += lanes) {
        std::int64_t const channel = i % found.extent(3);
        std::int64_t const token = i / found.extent(3) % found.extent(2);
        std::int64_t const head = i / found.extent(3) / found.extent(2) % found.extent(1);
        std::int64_t const sequence = i / found.extent(3) / found.extent(2) / found.extent(1);
        own[lane].take(static_cast<double>(load(found(sequence, head, token, channel))),
                       static_cast<double>(load(expected(sequence, head, token, channel))));
      }
    }
    comparison_sums const total = detail::sum_of_lanes(group, own);
    for (int lane : group) {
      if (is_first(lane)) {
        sums[which] = total;
      }
    }
  }
};

/// Makes the score cosine * (1 - relative L1 error). It is 1 for tensors that are equal, even if they are zeros or
/// empty. Run with one group.
struct finish_comparison {
  static constexpr int lanes = 128;
  struct scratch_type {};

  array_view<comparison_sums const> sums;  ///< the sums of all groups
  array_view<float> score;                 ///< one element

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    per_lane<comparison_sums, G> own;
    for (int lane : group) {
      own[lane] = comparison_sums{};
      for (std::int64_t i = lane; i < sums.size(); i += lanes) {
        own[lane].products += sums[i].products;
        own[lane].first += sums[i].first;
        own[lane].second += sums[i].second;
        own[lane].apart += sums[i].apart;
        own[lane].size += sums[i].size;
      }
    }
    comparison_sums const total = detail::sum_of_lanes(group, own);
    for (int lane : group) {
      if (is_first(lane)) {
        double const cosine = total.products / (::sqrt(total.first) * ::sqrt(total.second));
        score[0] = total.apart == 0.0 ? 1.0F : static_cast<float>(cosine * (1.0 - total.apart / total.size));
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
