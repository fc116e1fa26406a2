// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What makes the entries of synthetic `zipf` classifiers as unequally frequent as words, for the CPU and for devices.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <tessera/testing/generators.hpp>

namespace bench {

/// The standard deviation of logits in zipf data, without what ranks add.
inline constexpr double zipf_deviation = 1.5;
/// Channel 0 of all hidden states.
inline constexpr float zipf_hidden = 4.0F;

/// The numbers 1 ... count in random order.
inline std::vector<std::int32_t> random_ranks(std::int64_t count, std::uint64_t seed) {
  std::vector<std::int32_t> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 1);
  for (std::size_t i = ranks.size(); i > 1; --i) {
    std::swap(ranks[i - 1], ranks[tessera::testing::hash(seed, i) % i]);
  }
  return ranks;
}

/// Channel 0 of the classifier's rows, which adds -1.2 ln(rank) to logits.
inline std::vector<float> zipf_channel(std::int64_t vocabulary, std::uint64_t seed) {
  std::vector<float> values;
  for (std::int32_t const rank : random_ranks(vocabulary, seed)) {
    values.push_back(-0.3F * std::log(static_cast<float>(rank)));
  }
  return values;
}

}  // namespace bench
