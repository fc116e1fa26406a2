// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The blocks of logits that a filter keeps, counted on the host for any order of the vocabulary's entries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace bench {

/// The part of blocks with a column that matters, if entries are taken in order `entries`. `matters` (blocks of tokens
/// x vocabulary) has a value other than 0 for each column with an element that reaches the threshold.
inline double kept_blocks(std::vector<unsigned char> const& matters, std::vector<std::size_t> const& entries,
                          std::size_t columns) {
  std::size_t kept = 0;
  std::size_t blocks = 0;
  for (std::size_t row = 0; row < matters.size(); row += entries.size()) {
    for (std::size_t first = 0; first < entries.size(); first += columns, ++blocks) {
      std::size_t const last = std::min(first + columns, entries.size());
      for (std::size_t i = first; i < last; ++i) {
        if (matters[row + entries[i]] != 0) {
          ++kept;
          break;
        }
      }
    }
  }
  return static_cast<double>(kept) / static_cast<double>(blocks);
}

/// The entries in their own order.
inline std::vector<std::size_t> in_own_order(std::size_t vocabulary) {
  std::vector<std::size_t> entries(vocabulary);
  std::iota(entries.begin(), entries.end(), std::size_t{0});
  return entries;
}

/// The entries, in falling order of the number of blocks of tokens that they matter to.
inline std::vector<std::size_t> by_use(std::vector<unsigned char> const& matters, std::size_t vocabulary) {
  std::vector<std::size_t> uses(vocabulary);
  for (std::size_t i = 0; i < matters.size(); ++i) {
    uses[i % vocabulary] += matters[i];
  }
  std::vector<std::size_t> entries = in_own_order(vocabulary);
  std::stable_sort(entries.begin(), entries.end(), [&](std::size_t a, std::size_t b) { return uses[a] > uses[b]; });
  return entries;
}

}  // namespace bench
