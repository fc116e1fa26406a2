// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Sequences for offloaded caches with chunks that lie outside of the prompt's directions.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <tessera/core/precision.hpp>

#include "support/offload_problem.hpp"

namespace tessera_test {

/// Makes a prompt whose keys are in the even channels, but for a hundredth of their squares, and then chunks of 8
/// tokens with the part `share(chunk)` in the odd channels. All keys have the same length.
template <class T, class Share>
offload_sequence<T> sequence_that_strays(offload_heads const& heads, std::int64_t tokens, std::int64_t prompt,
                                         Share const& share) {
  auto s = make_sequence<T>(heads, tokens, 41);
  auto const channels = static_cast<std::size_t>(heads.channels);
  for (std::int64_t row = 0; row < heads.key_heads * tokens; ++row) {
    std::int64_t const token = row % tokens;
    double const odd = token < prompt ? 0.01 : share(token / 8);
    T* const key = s.keys.data() + row * heads.channels;
    double squares[2] = {0, 0};
    for (std::size_t c = 0; c < channels; ++c) {
      double const x = static_cast<double>(tessera::load(key[c]));
      squares[c % 2] += x * x;
    }
    for (std::size_t c = 0; c < channels; ++c) {
      double const wanted = static_cast<double>(channels) * (c % 2 == 1 ? odd : 1 - odd);
      double const by = std::sqrt(wanted / squares[c % 2]);
      key[c] = tessera::store<T>(static_cast<float>(by * static_cast<double>(tessera::load(key[c]))));
    }
  }
  return s;
}

/// The part of a chunk in the odd channels: 0.3 to 0.9 for six chunks from 34 to 47, 0.01 for all others.
inline double share_that_strays(std::int64_t chunk) {
  switch (chunk) {
    case 34:
      return 0.5;
    case 36:
      return 0.3;
    case 39:
      return 0.8;
    case 42:
      return 0.6;
    case 45:
      return 0.4;
    case 47:
      return 0.9;
    default:
      return 0.01;
  }
}

}  // namespace tessera_test
