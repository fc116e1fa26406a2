// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Attention by its definition, in double, to compare results with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/precision.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera_examples {

/// The attention of one query.
struct exact_attention {
  std::vector<double> weights;  ///< weight of each key; their sum is 1
  std::vector<double> result;   ///< result in each channel
};

/// Attends. Keys and values: tokens x channels, at least one token. Scores are divided by the root of the number of
/// channels.
template <class T>
exact_attention attend_exactly(tessera::array_view<T const> query, tessera::matrix_view<T const> keys,
                               tessera::matrix_view<T const> values) {
  auto const in_double = [](T element) { return static_cast<double>(tessera::load(element)); };
  double const scale = 1 / std::sqrt(static_cast<double>(query.size()));
  exact_attention found;
  for (std::int64_t key = 0; key < keys.extent(0); ++key) {
    double score = 0;
    for (std::int64_t channel = 0; channel < query.size(); ++channel) {
      score += in_double(query[channel]) * in_double(keys(key, channel)) * scale;
    }
    found.weights.push_back(score);
  }
  double const largest = *std::max_element(found.weights.begin(), found.weights.end());
  double total = 0;
  for (double& weight : found.weights) {
    weight = std::exp(weight - largest);
    total += weight;
  }
  found.result.resize(static_cast<std::size_t>(values.extent(1)));
  for (std::int64_t key = 0; key < keys.extent(0); ++key) {
    double& weight = found.weights[static_cast<std::size_t>(key)];
    weight /= total;
    for (std::int64_t channel = 0; channel < values.extent(1); ++channel) {
      found.result[static_cast<std::size_t>(channel)] += weight * in_double(values(key, channel));
    }
  }
  return found;
}

}  // namespace tessera_examples
