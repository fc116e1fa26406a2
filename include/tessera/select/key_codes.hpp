// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Selects chunks of keys by two bits for each channel of each key. A chunk's score takes each of its keys into
/// account, so that a single important key is found; in a mean its part would be divided by the number of keys.
///
///     tessera::key_code_selector<8> selector{.chunks = 256};
///
/// The selector keeps 2 bits a channel and a scale for each key: for a chunk of 8 keys as many bytes as its mean in 16
/// bits takes, and 32 more. Codes stand for the four levels with the least squared error for normal values (Max 1960),
/// times the root of the key's mean square.
#pragma once

#include <cstdint>

#include <tessera/concepts/chunk_selector.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/little_endian.hpp>
#include <tessera/core/math.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/select/chunk_budget.hpp>
#include <tessera/select/query_group.hpp>

namespace tessera {
inline namespace v0 {

/// Keys have a multiple of 4 channels.
template <int Chunk, class QueryGroup = group_max>
struct key_code_selector {
  static_assert(Chunk > 0, "tessera: key_code_selector needs chunks of at least one key");

  using element_type = std::uint8_t;
  using group_type = QueryGroup;
  static constexpr int chunk = Chunk;
  static constexpr float levels[2] = {0.4528F, 1.510F};  ///< in standard deviations: least squared error for N(0, 1)
  static constexpr float border = 0.9816F;               ///< the magnitude between the two levels

  std::int64_t chunks = 256;  ///< chunks to take for each key head

  /// The bytes kept of a chunk: the codes of all keys, then their scales, 4 bytes each, the lowest first.
  TESSERA_FN constexpr std::int64_t elements(std::int64_t channels) const { return Chunk * (channels / 4 + 4); }
  TESSERA_FN constexpr std::int64_t pieces(std::int64_t) const { return Chunk; }

  template <class Keys>
  TESSERA_FN void reduce(Keys const& keys, std::int64_t piece, std::int64_t channels, element_type* kept) const {
    float scale = root_of_mean_square(keys, piece, channels, 1.0F);
    if (scale == infinity) {  // squares of keys from 1e19 on
      scale = root_of_mean_square(keys, piece, channels, 0x1p-70F) * 0x1p70F;
    }
    for (std::int64_t first = 0; first < channels; first += 4) {
      int codes = 0;
      for (int i = 0; i < 4; ++i) {
        codes |= code(keys(piece, first + i), scale) << (2 * i);
      }
      kept[(piece * channels + first) / 4] = static_cast<element_type>(codes);
    }
    store_little_endian(kept + Chunk * channels / 4 + 4 * piece, bit_cast<std::uint32_t>(scale));
  }

  /// The logarithm of the sum of exp(score) over the chunk's keys.
  template <class Query>
  TESSERA_FN float score(Query const& query, element_type const* kept, std::int64_t channels,
                         scored_chunk const&) const {
    lse_reducer<float> const reducer;
    auto all = reducer.identity();
    for (int key = 0; key < Chunk; ++key) {
      float sum = 0.0F;
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        int const shift = 2 * static_cast<int>(channel % 4);
        sum = multiply_add(query(channel), level(kept[(key * channels + channel) / 4] >> shift & 3), sum);
      }
      reducer.push(all, sum * scale_of(kept, key, channels));
    }
    return reducer.value(all);
  }

  TESSERA_FN constexpr std::int64_t budget(std::int64_t candidates) const { return chunk_budget(chunks, candidates); }

 private:
  template <class Keys>
  TESSERA_FN static float root_of_mean_square(Keys const& keys, std::int64_t token, std::int64_t channels, float by) {
    float squares = 0.0F;
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      float const key = by * keys(token, channel);
      squares = multiply_add(key, key, squares);
    }
    return sqrt(squares / static_cast<float>(channels));
  }
  /// The code of a channel: the sign in the upper bit, the magnitude in the lower one.
  TESSERA_FN static constexpr int code(float key, float scale) {
    return (key < 0.0F ? 2 : 0) | (absolute(key) > border * scale ? 1 : 0);
  }
  TESSERA_FN static constexpr float level(int code) {
    // Reads values rather than one of two variables: the array is not on the device.
    float const magnitude = (code & 1) != 0 ? float{levels[1]} : float{levels[0]};
    return (code & 2) != 0 ? -magnitude : magnitude;
  }
  TESSERA_FN static float scale_of(element_type const* kept, int key, std::int64_t channels) {
    return bit_cast<float>(load_little_endian<std::uint32_t>(kept + Chunk * channels / 4 + 4 * key));
  }
};

static_assert(ChunkSelector<key_code_selector<8>>);

}  // namespace v0
}  // namespace tessera
