// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Warpgroups, tiles and pipeline stages for sm_90a's program of algorithm/attention/dense_attention.hpp, with the
/// measurements that chose them.
#pragma once

#include <tessera/config.hpp>
#include <tessera/tuning/attention/attention.hpp>

namespace tessera {
inline namespace v0 {

/// The policy of dense_warpgroup_attention. A thread block has 64 rows of queries for each consumer warpgroup.
struct dense_attention_policy {
  int consumers;           ///< consumer warpgroups
  int keys;                ///< keys of a tile
  int stages;              ///< pipeline stages, each a tile of keys and a tile of values
  int query_stages;        ///< blocks of queries in shared memory
  bool overlaps;           ///< whether a tile's scores are begun before the weights of the tile before are multiplied
  bool alternates;         ///< whether warpgroups take turns in starting products
  int producer_registers;  ///< registers of each thread of the producer warpgroup
  int consumer_registers;  ///< registers of each thread of the consumer warpgroups

  friend constexpr bool operator==(dense_attention_policy const&, dense_attention_policy const&) = default;
};

/// The policy for `Channels` channels. IsMasked: whether queries see different keys.
template <int Channels, bool IsMasked>
struct dense_attention_tuning {
  using policy_type = dense_attention_policy;
  TESSERA_FN constexpr policy_type operator()(int) const {
    return Channels > 128  ? policy_type{2, 64, 2, 1, true, true, 24, 240}
           : Channels > 64 ? policy_type{2, 160, 2, 1, true, false, 40, 232}
                           : policy_type{3, 128, 2, 2, true, true, 32, 160};
  }
};

/// The policy by which the last work items of sm_90a's program are split. Costs are in quarters of the time of a tile.
struct dense_split_tuning {
  using policy_type = attention_split_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {{3, 4, 5, 5}, 1, 16, 6, 12, 200}; }
};

}  // namespace v0
}  // namespace tessera
