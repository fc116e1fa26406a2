// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `dense_decode_step`: what a warp does with a step of keys and values of 16 bits in shared memory, when they have
/// come: it adds them to its decode_columns (program/attention/decode_fragments.cuh). `dense_stage` is how they lie.
#pragma once

#include <cstdint>

#include <tessera/core/math.hpp>
#include <tessera/program/attention/decode_fragments.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// The layout in shared memory of a stage: the tokens of a key head that a program takes at a time.
template <int Channels, int Tokens>
struct dense_stage {
  static constexpr int panel_channels = 64;  ///< channels of a panel: 128 bytes, swizzled
  static constexpr int panels = Channels / panel_channels;
  static constexpr int panel_bytes = Tokens * 128;    ///< bytes of a panel
  static constexpr int bytes = panels * panel_bytes;  ///< bytes of keys, and of values, in a stage

  /// The addresses of tokens' channels. Tokens beyond the last one get the address of the last.
  struct rows {
    std::uint32_t base;  ///< address of the stage in shared memory
    int last;            ///< the last token that exists

    /// The address of the lane's eight channels of a row.
    __device__ __forceinline__ std::uint32_t operator()(int row, int strip, int half) const {
      int const kept = min(row, last);
      auto const lane = base + static_cast<std::uint32_t>(kept * 128 + ((kept % 8) ^ half) * 16);
      return (lane ^ static_cast<std::uint32_t>(strip % 4 * 32)) + static_cast<std::uint32_t>(strip / 4 * panel_bytes);
    }
  };
  static_assert(Channels % panel_channels == 0 && panel_bytes % 1024 == 0,
                "tessera: dense_decode takes multiples of 64 channels and of 8 tokens");
};

namespace detail {

/// A warp's work on a step of `Tokens` tokens. T: the type of queries, keys and values.
template <int Channels, int Tokens, class T>
struct dense_decode_step {
  using columns_type = decode_columns<Channels>;
  /// The layout of keys and of values.
  using stage_layout = dense_stage<Channels, Tokens>;
  static constexpr int tiles = Tokens / 16;  ///< tiles of 16 tokens
  /// The weights of a step, as second operands of products with values.
  using weights_type = std::uint32_t[tiles][2];

  std::int32_t first;    ///< the first token of the step
  std::int32_t last;     ///< the last token of the step that exists, counted from `first`
  std::int32_t seen[2];  ///< how many tokens each of the lane's two columns sees

  /// Makes the weights of keys at `keys`, an address in shared memory. `factor`: what scores are multiplied by.
  __device__ __forceinline__ void weigh(std::uint32_t keys, columns_type& columns,
                                        std::uint32_t const (&queries)[columns_type::strips][2], float factor,
                                        bool is_masked, int lane, weights_type& weights) const {
    typename stage_layout::rows const key_rows{keys, last};
    float scores[tiles][4] = {};
    columns_type::template add_keys<T>(scores, queries, key_rows, lane);
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[tile][i] *= factor;
        std::int32_t const token = first + 16 * tile + lane / 4 + i / 2 * 8;
        if (is_masked && token >= seen[i % 2]) {
          scores[tile][i] = -infinity;
        }
      }
    }
    float largest[2];
    columns_type::find_largest(scores, largest);
    if (any_of_warp(columns.are_beyond(largest))) {
      float factors[2];
      columns.raise(largest, 0.0F, factors);
    }
    float2 const sums = columns_type::weigh(scores, columns.reference[0], columns.reference[1]);
    columns.sum[0] += sums.x;
    columns.sum[1] += sums.y;
    columns_type::template make_operands<T>(scores, weights);
  }
  /// Adds the weighted values at `values`, an address in shared memory.
  __device__ __forceinline__ void add_values(std::uint32_t values, columns_type& columns, weights_type const& weights,
                                             int lane) const {
    typename stage_layout::rows const value_rows{values, last};
    columns_type::template add_values<T>(columns.outputs, weights, value_rows, lane);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
