// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Puts keys and values that are hard for a cache among those of a layer_pair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/testing/generators.hpp>

#include "support/cache_problem.hpp"

namespace tessera_test {

/// The sets of hard vectors.
enum class odd_vectors : unsigned {
  none = 0,
  not_finite = 1,  ///< vectors with an infinity or a NaN among the channels
  zeros = 2,       ///< zeros in one layer or in both, with either sign
  related = 4,     ///< vectors that are opposite, or the same, in both layers
  /// Vectors that are very long or short: beyond fp16, beyond floats whose squares are finite, below fp16's normal
  /// numbers.
  long_ones = 8,
  signed_zeros = 16,  ///< channels of zeros of both signs; a constant channel
  all = 31
};

template <class T>
class vector_spoiler {
 public:
  explicit vector_spoiler(layer_pair<T>& pair) : pair_(pair) {}

  void spoil(std::int64_t token, odd_vectors odd) {
    auto const has = [odd](odd_vectors which) {
      return (static_cast<unsigned>(odd) & static_cast<unsigned>(which)) != 0;
    };
    std::uint64_t const kind = testing::hash(5, static_cast<std::uint64_t>(token)) % 40;
    if (has(odd_vectors::not_finite) && kind < 3) {
      at(token, kind == 0 ? 0 : 1, kind == 2 ? 1 : 0, 3) = kind == 0 ? store<T>(infinity) : T{0x7fff};
    }
    if (has(odd_vectors::zeros) && kind >= 3 && kind < 7) {
      fill(token, 0, kind % 2, kind < 5 ? 0.0F : -0.0F);
      if (kind != 3) {
        fill(token, 1, kind % 2, kind == 5 ? 0.0F : -0.0F);
      }
    }
    if (has(odd_vectors::related) && kind >= 7 && kind < 11) {
      relate(token, kind % 2, kind < 9 ? -1.0F : 1.0F);
    }
    if (has(odd_vectors::long_ones) && kind >= 11 && kind < 17) {
      constexpr float sizes[] = {20000.0F, 3e38F, 1e-6F, 1e20F, 1e-20F, 60000.0F};
      fill(token, kind % 2, kind / 2 % 2, sizes[kind - 11]);
    }
    if (has(odd_vectors::signed_zeros)) {
      spoil_channels(token);
    }
  }

 private:
  T& at(std::int64_t token, std::uint64_t layer, std::uint64_t part, std::int64_t channel) {
    return pair_.part[layer][part][static_cast<std::size_t>(token * pair_.channels + channel)];
  }
  void fill(std::int64_t token, std::uint64_t layer, std::uint64_t part, float value) {
    for (std::int64_t channel = 0; channel < pair_.channels; ++channel) {
      at(token, layer, part, channel) = store<T>(value);
    }
  }
  void relate(std::int64_t token, std::uint64_t part, float factor) {
    for (std::int64_t channel = 0; channel < pair_.channels; ++channel) {
      at(token, 1, part, channel) = store<T>(factor * load(at(token, 0, part, channel)));
    }
  }
  void spoil_channels(std::int64_t token) {
    at(token, 0, 0, 5) = store<T>(0.0F);
    at(token, 1, 0, 5) = store<T>(token % 2 == 0 ? 0.0F : -0.0F);
    at(token, 0, 0, 6) = store<T>(2.0F);
    at(token, 1, 0, 6) = store<T>(2.0F);
    for (std::int64_t channel = 0; channel < pair_.channels; channel += 3) {
      if (testing::hash(9, static_cast<std::uint64_t>(token * pair_.channels + channel)) % 4 == 0) {
        at(token, 0, 1, channel) = store<T>(-0.0F);
        at(token, 1, 1, channel) = store<T>(token % 3 == 0 ? 0.0F : -0.0F);
      }
    }
  }

  layer_pair<T>& pair_;
};

/// Spoils one token in 40 for each kind of vector.
template <class T>
void spoil(layer_pair<T>& pair, odd_vectors odd) {
  vector_spoiler<T> spoiler(pair);
  for (std::int64_t token = 0; token < pair.sequences * pair.heads * pair.tokens; ++token) {
    spoiler.spoil(token, odd);
  }
}

}  // namespace tessera_test
