// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Keys, queries and scores of chunks for tests of selectors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/select/chunk_landmarks.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/chunk_selector.hpp>

namespace tessera_test {

inline constexpr std::int64_t selector_channels = 16;

inline std::vector<float> normal_rows(std::int64_t rows, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(rows * selector_channels));
  tessera::testing::fill(tessera::testing::gauss(), seed, values.data(), values.size());
  return values;
}

/// Whether a selector keeps the laws over five chunks of 8 keys, with a chunk of zeros and a chunk of large values in
/// front; returns what it breaks.
template <class Selector>
std::string broken_chunk_laws(Selector const& selector = {}) {
  auto keys = normal_rows(5 * 8, 3);
  std::fill_n(keys.begin(), 8 * selector_channels, 0.0F);
  std::fill_n(keys.begin() + 8 * selector_channels, 8 * selector_channels, -3e4F);
  return tessera::testing::check_chunk_laws<Selector>(keys, normal_rows(3, 4), selector_channels, selector).text();
}

inline double product(float const* a, float const* b) {
  double sum = 0;
  for (std::int64_t i = 0; i < selector_channels; ++i) {
    sum += double{a[i]} * double{b[i]};
  }
  return sum;
}

/// The score of one chunk of 8 keys.
template <class Selector>
float score_of(Selector const& selector, std::vector<float> const& keys, std::vector<float> const& query) {
  tessera::testing::detail::float_rows const rows{keys.data(), selector_channels};
  auto const kept = tessera::testing::detail::kept_of(selector, rows, 0, false);
  tessera::testing::detail::float_rows const queries{query.data(), selector_channels};
  return tessera::chunk_landmarks<Selector>::score(selector, queries, kept.data(), selector_channels, {0, 0, 0});
}

}  // namespace tessera_test
