// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `chunk_landmarks<S>`: the data that a ChunkSelector keeps of chunks, behind the same functions for all selectors.
///
///     using landmarks = chunk_landmarks<landmark_selector<8>>;      // 16-bit elements, one for each channel
///     std::vector<bfloat16> kept(landmarks::elements(selector, channels));
///     for (std::int64_t piece = 0; piece < landmarks::pieces(selector, channels); ++piece) {
///       landmarks::reduce(selector, keys, piece, channels, kept.data());
///     }
///     float const score = landmarks::score(selector, query, kept.data(), channels, at);
///
/// For a Selector, the floats of its landmark_type are kept as bfloat16: the first floats of all channels, then the
/// second floats of all channels, and so on. Scores are added up from the first channel to the last.
#pragma once

#include <cstdint>

#include <tessera/concepts/chunk_selector.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>

namespace tessera {
inline namespace v0 {

/// Landmarks of a ChunkSelector that says itself how it keeps chunks.
// A switch, not a second constraint: clang 14 takes a second to tell which of two such constraints is the stricter one.
template <ChunkSelector S, bool of_floats = Selector<S>>
struct chunk_landmarks {
  using element_type = typename S::element_type;

  /// How many elements are kept of a chunk.
  TESSERA_FN static constexpr std::int64_t elements(S const& selector, std::int64_t channels) {
    return selector.elements(channels);
  }
  /// The number of pieces of a chunk that lanes reduce independently.
  TESSERA_FN static constexpr std::int64_t pieces(S const& selector, std::int64_t channels) {
    return selector.pieces(channels);
  }
  template <class Keys>
  TESSERA_FN static void reduce(S const& selector, Keys const& keys, std::int64_t piece, std::int64_t channels,
                                element_type* kept) {
    selector.reduce(keys, piece, channels, kept);
  }
  template <class Query>
  TESSERA_FN static float score(S const& selector, Query const& query, element_type const* kept, std::int64_t channels,
                                scored_chunk const& at) {
    return selector.score(query, kept, channels, at);
  }
};

/// Landmarks of a Selector, which has one for each channel.
template <ChunkSelector S>
struct chunk_landmarks<S, true> {
  using element_type = bfloat16;
  using landmark_type = typename S::landmark_type;
  static constexpr int parts = static_cast<int>(sizeof(landmark_type) / sizeof(float));  ///< floats of a landmark
  static_assert(sizeof(landmark_type) % sizeof(float) == 0, "tessera: landmarks of a cache consist of floats");
  /// A landmark as floats.
  struct floats {
    float values[parts];  ///< the floats of a landmark in their order
  };

  /// How many elements are kept of a chunk: a landmark of each channel.
  TESSERA_FN static constexpr std::int64_t elements(S const&, std::int64_t channels) { return parts * channels; }
  /// The number of pieces of a chunk that lanes reduce independently: one for each channel.
  TESSERA_FN static constexpr std::int64_t pieces(S const&, std::int64_t channels) { return channels; }

  template <class Keys>
  TESSERA_FN static void reduce(S const& selector, Keys const& keys, std::int64_t piece, std::int64_t channels,
                                element_type* kept) {
    auto summary = selector.summary().identity();
    for (int token = 0; token < S::chunk; ++token) {
      selector.summary().push(summary, keys(token, piece));
    }
    auto const landmark = bit_cast<floats>(selector.landmark(summary));
    for (int part = 0; part < parts; ++part) {
      kept[part * channels + piece] = store<bfloat16>(landmark.values[part]);
    }
  }

  template <class Query>
  TESSERA_FN static float score(S const& selector, Query const& query, element_type const* kept, std::int64_t channels,
                                scored_chunk const&) {
    float sum = 0.0F;
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      floats landmark;
      for (int part = 0; part < parts; ++part) {
        landmark.values[part] = load(kept[part * channels + channel]);
      }
      sum += selector.score(query(channel), bit_cast<landmark_type>(landmark));
    }
    return sum;
  }
};

}  // namespace v0
}  // namespace tessera
