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
  /// The words for scores.
  using scores_type = typename columns_type::template scores_type<Tokens>;
  /// The weights of a step, as second operands of products with values.
  using weights_type = typename columns_type::template operands_type<T, Tokens>;
  /// A number of tokens for each row.
  using seen_type = typename columns_type::template row_values<std::int32_t>;

  std::int32_t first;  ///< the first token of the step
  std::int32_t last;   ///< the last token of the step that exists, counted from `first`
  seen_type seen;      ///< how many tokens each row sees

  /// Makes the weights of keys at `keys`, an address in shared memory. `factor`: what scores are multiplied by.
  __device__ __forceinline__ void weigh(std::uint32_t keys, columns_type& columns,
                                        std::uint32_t const (&queries)[columns_type::strips][2], float factor,
                                        bool is_masked, int lane, weights_type& weights) const {
    cuda_warp const group;
    typename stage_layout::rows const key_rows{keys, last};
    typename scores_type::sum_tile scores{};
    columns_type::template add_keys<T>(scores, queries, key_rows, lane);
    scores_type::each_with_row(group, scores, [factor](int, int, float& score) { score *= factor; });
    if (is_masked) {
      seen_type ends;
      scores_type::each_row(
          group, [&](int, std::int32_t& end, std::int32_t of_row) { end = of_row - first; }, ends, seen);
      scores_type::hide_from(group, scores, -infinity, ends);
    }
    columns.template weigh<Tokens>(scores);
    scores_type::template as_operand<typename columns_type::template values_product<T, Tokens>, 0>(group, scores,
                                                                                                   weights);
  }
  /// Adds the weighted values at `values`, an address in shared memory.
  __device__ __forceinline__ void add_values(std::uint32_t values, columns_type& columns, weights_type const& weights,
                                             int lane) const {
    typename stage_layout::rows const value_rows{values, last};
    columns_type::template add_values<T, Tokens>(columns.outputs, weights, value_rows, lane);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
