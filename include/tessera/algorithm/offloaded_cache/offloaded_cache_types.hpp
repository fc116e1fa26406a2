// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What algorithm/offloaded_cache/offloaded_cache.hpp takes and gives: shapes, options, tokens, results.
///
///     offload_shape const shape{32, 8, 128, {131072, 4096}};     // two sequences
///     offload_options options;
///     options.values = value_store::device;
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/subspace/factorize_keys.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// One layer of the sequences of a batch.
struct offload_shape {
  std::int64_t query_heads;          ///< of all key heads together
  std::int64_t key_heads;            ///< query head h reads key head h / (query_heads / key_heads)
  std::int64_t channels;             ///< of a head
  std::vector<std::int64_t> tokens;  ///< that each sequence has room for
};

/// Where values of archived chunks are kept: in pinned memory of the host, which the device reads, or on the device,
/// where they take the room that the method is to save, but cross no bus: for hosts that cannot pin as much, and for
/// small batches.
enum class value_store : std::uint8_t { host, device };

/// What a cache may choose.
struct offload_options {
  std::int64_t ring = 64;    ///< latest tokens that are exact: from ring - chunk + 1 to ring; a multiple of the chunk
  std::int64_t slots = 0;    ///< chunks of a head that stay on the device; 0: as many as are selected
  std::int64_t strays = 16;  ///< chunks of a head that may be exact because directions do not hold them
  /// Strays are chunks that leave, outside of the directions, more than so many times what the prompt left.
  float residual_limit = 3.0F;
  float softmax_scale = 0.0F;              ///< 0: 1 / sqrt(channels)
  value_store values = value_store::host;  ///< of archived chunks
  /// Steps find the directions of a sequence anew when it has so many times the tokens that they were fitted to.
  float renewal_growth = 1.25F;
  /// Steps find directions anew only if they were fitted to fewer tokens than so many for each direction; 0: never.
  float renewal_until = 8.0F;
  bool keeps_products = false;   ///< 4 * (key_heads * channels)^2 bytes more a sequence, for refit()
  bool keeps_slots = true;       ///< false: fetches everything anew in each step; for tests and measurements
  subspace_options search = {};  ///< for directions
};

/// A token for each of some sequences. Any strides.
template <class T>
struct offload_tokens {
  view<T const, 3> queries;  ///< steps x query heads x channels, before their rotation
  view<T const, 3> keys;     ///< steps x key heads x channels, before their rotation
  view<T const, 3> values;   ///< steps x key heads x channels
  /// The sequence of each step, where executors run; null: step i is of sequence i; -1: the step is of none.
  array_view<std::int32_t const> sequences = {};
};

/// Steps of no sequence, or of one that decode() reports, get zeros and minus infinity.
template <class Result>
struct offload_outputs {
  view<Result, 3> result;           ///< steps x query heads x channels
  view<float, 2> log_sum_exp = {};  ///< steps x query heads: natural, of the scaled scores attended to; or null
};

/// What a cache tells of its sequences and chunks.
struct offload_statistics {
  std::vector<cached_sequence> sequences;  ///< lengths, as the host sees them
  std::vector<chunk_usage> usage;          ///< of each sequence, of each key head

  /// The share of selected chunks that were in a slot already; 0 if none were selected.
  [[nodiscard]] double hit_rate() const {
    std::int64_t selected = 0;
    std::int64_t resident = 0;
    for (chunk_usage const& head : usage) {
      selected += head.selected;
      resident += head.resident;
    }
    return selected == 0 ? 0.0 : static_cast<double>(resident) / static_cast<double>(selected);
  }
};

/// How far a prompt is: from begin() over take() to finish().
struct offload_prompt {
  std::int64_t sequence;    ///< of the batch
  std::int64_t tokens = 0;  ///< taken
};

}  // namespace v0
}  // namespace tessera
