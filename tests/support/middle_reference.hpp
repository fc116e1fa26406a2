// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The mean of middles of program/attention/channel_statistics.hpp, written in another way: by sorting.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

namespace tessera_test {

inline float sum_of_middle_two(std::array<float, 4> four) {
  std::sort(four.begin(), four.end());
  return four[1] + four[2];
}

/// The mean of middles of a channel of a sequence, or of its sample; values that are not finite count as zero.
inline float mean_of_middles(std::vector<float> values, std::size_t block = 128) {
  if (values.empty()) {
    return 0.0F;
  }
  for (float& value : values) {
    value = std::isfinite(value) ? value : 0.0F;
  }
  std::size_t const there = values.size();
  for (std::size_t i = there; i < 16; ++i) {
    values.push_back(values[i % there]);
  }
  values.resize(values.size() / 16 * 16);
  std::array<float, 32> over{};
  for (std::size_t first = 0; first < values.size(); first += block) {
    std::array<float, 16> inside{};
    for (std::size_t token = first; token < std::min(first + block, values.size()); ++token) {
      inside[token % 16] += values[token];
    }
    std::array<float, 4> middle{};
    for (std::size_t i = 0; i < 4; ++i) {
      middle[i] = sum_of_middle_two({inside[i], inside[i + 4], inside[i + 8], inside[i + 12]});
    }
    over[first / block % 32] += 4.0F * sum_of_middle_two(middle);
  }
  for (std::size_t half = 16; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) {
      over[i] += over[i + half];
    }
  }
  return over[0] / static_cast<float>(values.size());
}

}  // namespace tessera_test
