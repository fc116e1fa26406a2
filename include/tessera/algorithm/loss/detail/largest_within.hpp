// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `largest_within`: the search for how much of something fits into a budget, for the plans of a loss's workspace.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

struct search_range {
  std::int64_t first;
  std::int64_t end;
};
/// The largest number of a range for which `bytes`, which grow, are at most `most`; the first one if there is none.
/// Bytes are nearly linear, so that interpolation finds the number in a few steps; every third step halves the range.
template <class Bytes>
std::int64_t largest_within(search_range range, std::int64_t most, Bytes const& bytes) {
  std::int64_t of_first = bytes(range.first);
  std::int64_t of_end = range.end - 1 > range.first ? bytes(range.end - 1) : of_first;
  if (of_first > most || range.end - 1 == range.first) {
    return range.first;
  }
  if (of_end <= most) {
    return range.end - 1;
  }
  range.end -= 1;
  for (int turn = 1; range.end - range.first > 1; ++turn) {
    double const part =
        turn % 3 == 0 ? 0.5 : static_cast<double>(most - of_first) / static_cast<double>(of_end - of_first);
    auto const ahead = static_cast<std::int64_t>(part * static_cast<double>(range.end - range.first));
    std::int64_t const tried = range.first + clamp(ahead, std::int64_t{1}, range.end - range.first - 1);
    std::int64_t const found = bytes(tried);
    (found <= most ? range.first : range.end) = tried;
    (found <= most ? of_first : of_end) = found;
  }
  return range.first;
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
