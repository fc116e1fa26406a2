// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Summarises a chunk of keys of one head for an offloaded cache: `staged_keys` holds the keys in scratch, and
/// `summarize_chunk` writes their landmark and computes how well their mean represents them.
///
/// Results have the same bits on every executor: a mean is the sum of the keys in order, divided by their number. Of
/// the products of keys and means, lane i of 32 adds up channels i, i + 32, i + 64 ... in order, each with one
/// rounding, and the lanes' sums are added as tile/per_lane.hpp says.
#pragma once

#include <cstdint>
#include <utility>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/project/rotary.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/reduce/absolute_maximum_or_nan.hpp>
#include <tessera/select/chunk_landmarks.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// The keys of a head before their rotation, as a model gives them.
template <class T>
struct plain_keys {
  view<T const, 2> keys;  ///< tokens x channels

  /// The key of one token.
  struct row {
    T const* first;       ///< its first channel
    std::int64_t stride;  ///< elements from channel to channel
    /// One channel of the key.
    TESSERA_FN float operator()(std::int64_t channel) const {
      return static_cast<float>(load(first[channel * stride]));
    }
  };
  /// The key of a token.
  TESSERA_FN row at(std::int64_t token) const { return {&keys(token, 0), keys.stride(1)}; }
};

/// A channel of a key after its rotation, as it is stored.
template <class T, class Row>
TESSERA_FN T rotated(rotary_embedding const& rotary, std::int64_t position, std::int64_t channel, Row const& row) {
  return store<T>(rotary.turn(position, channel, row));
}

/// The keys of a chunk after their rotation.
template <class T>
struct staged_keys {
  T keys[most_chunk_elements];  ///< tokens x channels
  float mean[most_channels];    ///< the mean of the chunk's keys

  /// Reads keys in scratch.
  struct reader {
    T const* keys;          ///< tokens x channels
    std::int64_t channels;  ///< channels of a key
    /// One channel of a token's key.
    TESSERA_FN float operator()(std::int64_t token, std::int64_t channel) const {
      return static_cast<float>(load(keys[token * channels + channel]));
    }
  };
};

/// Whether a selector keeps only codes of a chunk's mean.
template <class S>
inline constexpr bool codes_means = requires {
  S::keep(float{}, code_scale{}, std::declval<typename S::element_type&>());
};

/// Writes the codes of a mean that all lanes can read, and their scale, as the selector's reduce() would.
template <ChunkSelector S, Group G>
TESSERA_FN void keep_mean(G const& group, float const* mean, std::int64_t channels, typename S::element_type* kept) {
  per_lane<absolute_maximum_or_nan_reducer::state_type, G> own;
  for (int lane : group) {
    own[lane] = S::range().identity();
    for (std::int64_t channel = lane; channel < channels; channel += G::size) {
      S::range().push(own[lane], mean[channel]);
    }
  }
  code_scale const fitted = S::fit(reduce(group, own, detail::larger{}));
  for (int lane : group) {
    for (std::int64_t channel = lane; channel < channels; channel += G::size) {
      S::keep(mean[channel], fitted, kept[channel]);
    }
    if (is_first(lane)) {
      S::keep(fitted, kept + channels);
    }
  }
}

/// The least cosine between a key of a chunk and the mean, all of which are multiplied by the power of two `by` first;
/// minus infinity where a square is not finite.
template <ChunkSelector S, Group G, class Keys>
TESSERA_FN float least_cosine(G const& group, Keys const& keys, float const* mean, std::int64_t channels, float by) {
  per_lane<float, G> of_mean;
  for (int lane : group) {
    of_mean[lane] = 0.0F;
    for (std::int64_t channel = lane; channel < channels; channel += G::size) {
      of_mean[lane] = multiply_add(by * mean[channel], by * mean[channel], of_mean[lane]);
    }
  }
  float const mean_square = sum(group, of_mean);
  float least = 1.0F;
  for (int token = 0; token < S::chunk; ++token) {
    per_lane<float, G> product;
    per_lane<float, G> square;
    for (int lane : group) {
      product[lane] = square[lane] = 0.0F;
      for (std::int64_t channel = lane; channel < channels; channel += G::size) {
        float const key = by * keys(token, channel);
        product[lane] = multiply_add(key, by * mean[channel], product[lane]);
        square[lane] = multiply_add(key, key, square[lane]);
      }
    }
    float const cosine = keep_outliers<1>::cosine(sum(group, product), sum(group, square), mean_square);
    least = cosine < least ? cosine : least;
  }
  return least;
}

/// Writes the landmark of staged keys that all lanes have written, without a sync since, and returns to all lanes the
/// least cosine between a key and the mean. 32 lanes.
template <ChunkSelector S, Group G, class T>
TESSERA_FN float summarize_chunk(G const& group, S const& selector, staged_keys<T>& scratch, std::int64_t channels,
                                 typename chunk_landmarks<S>::element_type* kept) {
  static_assert(G::size == 32, "tessera: sums over channels are those of 32 lanes");
  using landmarks = chunk_landmarks<S>;
  typename staged_keys<T>::reader const keys{scratch.keys, channels};
  group.sync();
  for (int lane : group) {
    if constexpr (!codes_means<S>) {
      for (std::int64_t piece = lane; piece < landmarks::pieces(selector, channels); piece += G::size) {
        landmarks::reduce(selector, keys, piece, channels, kept);
      }
    }
    for (std::int64_t channel = lane; channel < channels; channel += G::size) {
      float total = 0.0F;
      for (int token = 0; token < S::chunk; ++token) {
        total += keys(token, channel);
      }
      scratch.mean[channel] = total / static_cast<float>(S::chunk);
    }
  }
  group.sync();
  if constexpr (codes_means<S>) {
    keep_mean<S>(group, scratch.mean, channels, kept);
  }
  float const least = least_cosine<S>(group, keys, scratch.mean, channels, 1.0F);
  // Squares of keys from 1e19 on are infinite: only then are the keys multiplied by a power of two.
  return least == -infinity ? least_cosine<S>(group, keys, scratch.mean, channels, 0x1p-70F) : least;
}

}  // namespace v0
}  // namespace tessera
