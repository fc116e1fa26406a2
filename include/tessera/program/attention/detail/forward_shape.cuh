// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `warpgroup_attention_shape`: the extents of warpgroup_attention.
#pragma once

#include <tessera/config.hpp>
#include <tessera/program/attention/detail/forward_band.hpp>
#include <tessera/tile/cuda/sm_90/register_budget.cuh>
#include <tessera/tile/cuda/sm_90/tensor_map.cuh>
#include <tessera/tuning/attention/attention.hpp>

namespace tessera {
inline namespace v0 {

/// Extents of warpgroup_attention: threads, rows, bytes of tiles.
template <int Channels, warpgroup_attention_policy Policy>
struct warpgroup_attention_shape {
  static constexpr int channels = Channels;  ///< channels of a head of values that the program multiplies
  /// Channels of a head of queries and keys that the program multiplies.
  static constexpr int score_channels = Policy.score_channels > 0 ? Policy.score_channels : Channels;
  /// Whether the program can make codes of queries itself.
  static constexpr bool makes_query_codes = score_channels == Channels;
  static constexpr int warpgroup = 128;      ///< threads of a warpgroup
  static constexpr int warpgroup_rows = 64;  ///< queries that a warpgroup multiplies
  static constexpr int lanes = warpgroup * (Policy.consumers + 1);
  static constexpr int rows = warpgroup_rows * Policy.consumers;  ///< queries of a thread block
  static constexpr int query_stages = 2;                          ///< blocks of queries in shared memory
  /// Numbers of work items in shared memory, in the stages of queries.
  static constexpr int work_stages = query_stages;
  static constexpr int row_bytes =
      score_channels % 128 == 0 ? 128 : 64;  ///< bytes of a row of a panel of queries or keys
  static constexpr int panels = score_channels / row_bytes;
  static constexpr int depth_steps = score_channels / 32;
  static constexpr int query_bytes = rows * score_channels;                 ///< bytes of a block's codes of queries
  static constexpr int key_bytes = attention_tile_keys * score_channels;    ///< bytes of a tile's codes of keys
  static constexpr int value_bytes = attention_tile_keys * (Channels + 8);  ///< bytes of a tile's values, with ones

  static constexpr box_swizzle swizzle = row_bytes == 128 ? box_swizzle::bytes_128 : box_swizzle::bytes_64;

  /// The offset of 32 channels, of number `step`, in a tile of `tile_rows` rows.
  TESSERA_FN static constexpr int step_bytes(int step, int tile_rows) {
    return 32 * step / row_bytes * (tile_rows * row_bytes) + 32 * step % row_bytes;
  }

  /// Columns of the product with values whose first channel is `first`; the last one has the column of ones as well.
  TESSERA_FN static constexpr int value_columns(int first) {
    int const left = Channels - first;
    return left > Policy.value_channels ? Policy.value_channels : left + 8;
  }

  static_assert(Channels == 64 || Channels == 128 || Channels == 256,
                "tessera: attention by sm_90a's tensor cores takes 64, 128 or 256 channels of values");
  static_assert(score_channels % 64 == 0 && score_channels <= 256,
                "tessera: attention by sm_90a's tensor cores takes up to four times 64 channels of queries and keys");
  static_assert(has_register_budgets(1 + Policy.consumers,
                                     Policy.producer_registers + Policy.consumers * Policy.consumer_registers),
                "tessera: warpgroups cannot have more registers together than at the kernel's entry");
};

}  // namespace v0
}  // namespace tessera
