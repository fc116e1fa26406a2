// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks attention within lists of tiles on CUDA devices against the portable programs of the device and the host, and
/// against the formula in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/map/listed_tiles.hpp>

#include "algorithm/attention/attention_codes_on_device.cuh"

namespace tessera_test {

/// How lists look.
enum class list_kind {
  half,       ///< each tile with probability one half, ascending; some lists are empty, some have all tiles
  shuffled,   ///< the same out of order
  hostile,    ///< out of order, with tiles that are there several times, and numbers that are no tile
  empty,      ///< no tile in any list
  all_tiles,  ///< all tiles, ascending
  last        ///< the last tile alone
};

/// The tiles of the list of block `number` of `tiles` tiles.
inline std::vector<std::int32_t> make_list(list_kind kind, std::uint64_t number, std::int32_t tiles) {
  auto const random = [&](std::int32_t i) {
    return tessera::testing::hash(31 + number, static_cast<std::uint64_t>(i)) >> 20U;
  };
  std::vector<std::int32_t> list;
  for (std::int32_t tile = 0; tile < tiles; ++tile) {
    bool const is_chosen = number % 7 == 3 ? false : number % 7 == 5 || random(tile) % 2 == 0;
    if (kind == list_kind::all_tiles || (kind == list_kind::last ? tile == tiles - 1 : is_chosen)) {
      list.push_back(tile);
    }
  }
  if (kind == list_kind::hostile) {
    std::vector<std::int32_t> const odd{
        -1,        tiles, 1 << 22, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min(),
        tiles / 2, 0};
    list.insert(list.end(), odd.begin(), odd.end());
    list.insert(list.end(), list.begin(), list.begin() + static_cast<std::ptrdiff_t>(list.size() / 2));
  }
  if (kind == list_kind::shuffled || kind == list_kind::hostile) {
    for (std::size_t i = list.size(); i > 1; --i) {
      std::swap(list[i - 1], list[random(static_cast<std::int32_t>(1000 + i)) % i]);
    }
  }
  return kind == list_kind::empty ? std::vector<std::int32_t>{} : list;
}

/// Gives a problem lists of tiles. Behind each list lies a tile that does not count.
template <class T>
void set_lists(attention_problem<T>& p, list_kind kind) {
  tessera::attention_shape const& s = p.shape;
  std::int64_t const lists = s.batch * s.query_heads * tessera::divide_up(s.queries, std::int64_t{64});
  auto const tiles = static_cast<std::int32_t>(tessera::divide_up(s.keys, std::int64_t{128}));
  std::size_t const room = as_size(2 * tiles + 12);
  p.list_counts.clear();
  p.list_tiles.clear();
  for (std::int64_t number = 0; number < lists; ++number) {
    std::vector<std::int32_t> list = make_list(kind, static_cast<std::uint64_t>(number), tiles);
    p.list_counts.push_back(static_cast<std::int32_t>(list.size()));
    list.resize(room, 0);
    p.list_tiles.insert(p.list_tiles.end(), list.begin(), list.end());
  }
}

/// How often a key is listed for a query, as a bias: minus infinity where it is not, log(n) where it is there n times.
template <class T>
double list_bias(attention_problem<T> const& p, std::int64_t sequence, std::int64_t head, std::int64_t query,
                 std::int64_t key) {
  std::int64_t const blocks = tessera::divide_up(p.shape.queries, std::int64_t{64});
  std::int64_t const number = (sequence * p.shape.query_heads + head) * blocks + query / 64;
  auto const first = p.list_tiles.begin() + number * p.list_room();
  auto const times = std::count(first, first + p.list_counts[as_size(number)], static_cast<std::int32_t>(key / 128));
  return std::log(static_cast<double>(times));
}

/// Errors of results relative to expected ones; NaN and infinity must be at the same places.
inline void check_near(attention_results const& found, attention_results const& expected, double apart,
                       double lse_apart) {
  std::vector<double> of_found;
  std::vector<double> of_expected;
  std::int64_t odd = 0;
  double size = 0;
  for (std::size_t i = 0; i < expected.result.size(); ++i) {
    if (std::isnan(expected.result[i]) || std::isnan(found.result[i])) {
      odd += std::isnan(expected.result[i]) != std::isnan(found.result[i]) ? 1 : 0;
    } else {
      of_found.push_back(found.result[i]);
      of_expected.push_back(expected.result[i]);
      size += std::fabs(expected.result[i]);
    }
  }
  CHECK(odd == 0);
  if (size > 0) {
    CHECK(error_of(of_found, of_expected).relative_l1 < apart);
  } else {
    CHECK(of_found == of_expected);
  }
  CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < lse_apart);
}

/// Checks a problem with lists. `there`, `here`: what is added to scores, for the device and the host. Returns whether
/// some work items were split.
template <class Attention = tessera::sage_attention2, class Bias = tessera::no_bias, class T = tessera::bfloat16>
bool check_listed(attention_problem<T> const& p, Bias const& there = {}, Bias const& here = {}) {
  tessera::attention_shape const& s = p.shape;
  CAPTURE(s.batch, s.query_heads, s.key_heads, s.queries, s.keys, s.channels, p.list_counts, p.list_tiles);
  CAPTURE(p.options.is_causal, p.options.window_left, p.options.window_right, p.query_lengths, p.key_lengths, p.sinks);
  constexpr double lse_apart = 0.0607;  // log(17 / 16): a row may have one weight that matters
  device_codes<Attention, T, tessera::listed_tiles<Bias>> const codes(p, {{}, there});
  CHECK(codes.by_warpgroups(codes.work_splits()) == (is_hopper() && s.keys > 0));
  auto const whole = codes.whole();
  auto const shared = codes.shared();
  auto const expected = run_attention_problem<Attention, T>(tessera::cpu{}, p, here);
  check_near(whole, expected, 5e-3, lse_apart);
  check_near(shared, whole, 5e-3, 1e-4);
  check_near(codes.portable(), expected, 5e-3, lse_apart);
  auto const left = codes.work_splits_on_host();
  return std::any_of(left.begin(), left.end(), [](float x) { return !std::isnan(x); });
}

}  // namespace tessera_test
