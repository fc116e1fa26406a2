// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `key_lanes`: the lanes of a thread block make codes of a tile of keys that they hold. encode_tiles
/// (attention/quantize_heads.cuh) does it of keys from memory, correct_tiles (attention/detail/query_corrections.cuh)
/// of those whose scores it makes.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/program/attention/detail/code_form.cuh>
#include <tessera/program/attention/detail/head_lanes.cuh>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/maximum_or_nan.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// T, Channels: see head_lanes. Form: that of codes. HasMean: whether a mean is subtracted.
template <class T, int Channels, code_form Form, bool HasMean>
struct key_lanes : head_lanes<T, Channels> {
  using base = head_lanes<T, Channels>;
  using base::passes, base::row_lanes, base::tile, base::vector;
  using pair = typename base::pair;
  using code = code_of_form<Form>;
  static constexpr int step = 8;  ///< from a token of a lane to its next

  /// The tokens of a lane: row + 8 i. As keys they share a scale, as queries each two of them do.
  struct coordinates {
    int row;      ///< the first token
    int channel;  ///< the first of eight channels
    TESSERA_FN explicit coordinates(int lane)
        : row(lane / row_lanes % 8 + lane / row_lanes / 8 * 64), channel(lane % row_lanes * vector) {}
  };
  /// Where codes and scales of a tile go.
  struct place {
    std::int8_t* codes;     ///< the tile's in quantized_keys::codes
    float* scales;          ///< the tile's four in quantized_keys::scales
    std::int32_t channels;  ///< channels of a head
  };

  /// Makes codes of a tile of which `tokens` exist. All lanes; between two calls they sync. `magnitude`: memory of
  /// `rows` floats.
  __device__ __forceinline__ static void encode_keys(cuda_block<base::lanes> const& group, place const& to,
                                                     std::int32_t tokens, pair const (&words)[passes][4],
                                                     float const (&mean)[vector], float* magnitude) {
    coordinates const where(group.lane);
    std::int32_t const left = tokens - where.row;
    float largest = 0.0F;
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      if (i * step < left) {
        largest = maximum_or_nan(largest, base::template magnitude_less<HasMean>(words[i], mean));
      }
    }
    code_scale const fitted =
        base::scale_of(join_scale_group(group, where, largest, magnitude), static_cast<float>(Form.highest));
    if (where.row < 8 && where.row % 2 == 0 && where.channel == 0) {
      to.scales[where.row / 2] = fitted.scale;
    }
    if (where.channel >= to.channels) {
      return;
    }
    float const factor_of_group = Form.factor_of(fitted.reciprocal);
    std::int8_t* at = to.codes + (std::int64_t{where.row} * to.channels + where.channel) / Form.in_byte;
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      uint2 const codes =
          base::template encode_less<code, HasMean>(words[i], mean, i * step < left ? factor_of_group : 0.0F);
      store_codes<Form>(at, codes);
      at += step * to.channels / Form.in_byte;
    }
  }

 private:
  /// The largest magnitude of the tokens n with the same n % 8 / 2, which two neighbouring rows of lanes have, in both
  /// halves of the tile.
  __device__ __forceinline__ static float join_scale_group(cuda_block<base::lanes> const& group, coordinates where,
                                                           float largest, float* magnitude) {
    constexpr int together = row_lanes == 32 ? 32 : 2 * row_lanes;
    constexpr int members = 4 * row_lanes / together;
#pragma unroll
    for (int distance = together / 2; distance > 0; distance /= 2) {
      largest = maximum_or_nan(largest, shuffle_xor(largest, distance));
    }
    float* const of_group = magnitude + where.row % 8 / 2 * members;
    if (group.lane % together == 0) {
      of_group[where.row / 64 * (members / 2) + (members == 4 ? where.row % 2 : 0)] = largest;
    }
    group.sync();
#pragma unroll
    for (int i = 0; i < members; ++i) {
      largest = maximum_or_nan(largest, of_group[i]);
    }
    return largest;
  }
};

}  // namespace v0
}  // namespace tessera
