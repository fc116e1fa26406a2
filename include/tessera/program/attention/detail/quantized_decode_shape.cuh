// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `few_queries_shape`: the extents of attention_of_few_queries (program/attention/quantized_decode.cuh).
#pragma once

#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/tile/cuda/sm_90/tensor_map.cuh>

namespace tessera {
inline namespace v0 {

/// The extents of the program for `Channels` channels or fewer.
template <int Channels>
struct few_queries_shape {
  /// Rows of a work item: queries of heads that share a key head.
  static constexpr int rows = static_cast<int>(few_queries);
  static constexpr int keys = static_cast<int>(attention_padding);  ///< keys of a tile
  static constexpr int warps = 8;                                   ///< warps that attend; with TMA one more loads
  static constexpr int warp_keys = keys / warps;                    ///< keys of a tile that a warp multiplies
  static constexpr int warp_channels = Channels / warps;            ///< channels of values that a warp adds up
  static constexpr int row_bytes = Channels > 64 ? 128 : 64;        ///< bytes of a row of a panel of keys
  static constexpr int panels = Channels / row_bytes;
  static constexpr int tile_bytes = keys * Channels;  ///< bytes of a tile of keys, and of a tile of values
  static constexpr int depth_steps = Channels / 32;
  static constexpr int column_steps = warp_channels / 8;  ///< multiplications of 8 channels of values
  static constexpr int weight_words = keys / 2 + 4;       ///< words of a row of weights; rows lie in different banks
  static constexpr box_swizzle swizzle = row_bytes == 128 ? box_swizzle::bytes_128 : box_swizzle::bytes_64;
  static_assert(Channels == 64 || Channels == 128 || Channels == 256,
                "tessera: attention of few queries takes 64, 128 or 256 channels");
};

}  // namespace v0
}  // namespace tessera
