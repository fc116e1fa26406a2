// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Selects chunks of keys by their mean, as landmark_selector does, but keeps 8 bits of it for each channel. That takes
/// half the memory of a mean in bfloat16, and half as much to read for each query.
///
///     tessera::coded_landmark_selector<8> selector{.chunks = 256};
///
/// With m the mean of a chunk's keys, codes and scores are
///
///     scale = max_i |m_i| / 127,   code_i = nearest(m_i / scale),   score(q) = scale * sum_i q_i code_i
///
/// A code is off by half a step at most, 0.4 % of the largest channel. A chunk of zeros has scale 0. Where a mean is
/// not finite, the scale is NaN, and so is every score.
#pragma once

#include <cstdint>

#include <tessera/concepts/chunk_selector.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/little_endian.hpp>
#include <tessera/core/math.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/reduce/absolute_maximum_or_nan.hpp>
#include <tessera/reduce/mean.hpp>
#include <tessera/select/chunk_budget.hpp>
#include <tessera/select/query_group.hpp>

namespace tessera {
inline namespace v0 {

/// `Chunk` neighbouring keys share a landmark. At most `chunks` chunks are taken. QueryGroup: how the query heads that
/// share a key head agree.
template <int Chunk, class QueryGroup = group_max>
struct coded_landmark_selector {
  static_assert(Chunk > 0, "tessera: coded_landmark_selector needs chunks of at least one key");

  using element_type = std::int8_t;
  using group_type = QueryGroup;
  /// The quantizer of a mean's channels.
  using quantizer_type = symmetric_quantizer<8, whole_tensor>;
  static constexpr int chunk = Chunk;
  static constexpr int scale_bytes = 4;  ///< bytes of the scale after the codes

  std::int64_t chunks = 256;  ///< chunks to take for each key head

  /// The bytes kept of a chunk: the codes of all channels, then their scale in 4 bytes, the lowest first.
  TESSERA_FN constexpr std::int64_t elements(std::int64_t channels) const { return channels + scale_bytes; }
  /// One piece, since the scale is that of all channels. Lanes that have the mean write it together by range(), fit()
  /// and keep().
  TESSERA_FN constexpr std::int64_t pieces(std::int64_t) const { return 1; }

  template <class Keys>
  TESSERA_FN void reduce(Keys const& keys, std::int64_t, std::int64_t channels, element_type* kept) const {
    auto largest = range().identity();
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      range().push(largest, mean(keys, channel));
    }
    code_scale const fitted = fit(largest);
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      keep(mean(keys, channel), fitted, kept[channel]);
    }
    keep(fitted, kept + channels);
  }

  template <class Query>
  TESSERA_FN float score(Query const& query, element_type const* kept, std::int64_t channels,
                         scored_chunk const&) const {
    float sum = 0.0F;
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      sum = multiply_add(query(channel), static_cast<float>(kept[channel]), sum);
    }
    return sum * scale_of(kept + channels);
  }

  TESSERA_FN constexpr std::int64_t budget(std::int64_t candidates) const { return chunk_budget(chunks, candidates); }

  // The steps of reduce(), for lanes that have the mean already.

  /// The Reducer for the channels of a mean.
  TESSERA_FN static constexpr absolute_maximum_or_nan_reducer range() { return {}; }
  /// The scale for the largest magnitude that range() found.
  TESSERA_FN static constexpr code_scale fit(absolute_maximum_or_nan_reducer::state_type largest) {
    return fit_scale(range().value(largest), static_cast<float>(quantizer_type::highest));
  }
  /// Writes the code of a channel.
  TESSERA_FN static constexpr void keep(float mean, code_scale const& fitted, element_type& code) {
    code = quantizer_type::encode_scaled(mean, fitted.reciprocal);
  }
  /// Writes the scale after the codes.
  TESSERA_FN static constexpr void keep(code_scale const& fitted, element_type* behind) {
    store_little_endian(behind, bit_cast<std::uint32_t>(fitted.scale));
  }

 private:
  template <class Keys>
  TESSERA_FN static float mean(Keys const& keys, std::int64_t channel) {
    mean_reducer<float> const reducer;
    auto sum = reducer.identity();
    for (int token = 0; token < Chunk; ++token) {
      reducer.push(sum, keys(token, channel));
    }
    return reducer.value(sum);
  }
  TESSERA_FN static constexpr float scale_of(element_type const* behind) {
    return bit_cast<float>(load_little_endian<std::uint32_t>(behind));
  }
};

static_assert(ChunkSelector<coded_landmark_selector<8>>);

}  // namespace v0
}  // namespace tessera
