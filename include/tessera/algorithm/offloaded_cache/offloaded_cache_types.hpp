// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The arguments and results of algorithm/offloaded_cache/offloaded_cache.hpp: shapes, options, tokens, outputs.
///
///     offload_shape const shape{32, 8, 128, {131072, 4096}};     // two sequences
///     offload_options options;
///     options.values = value_store::device;
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/subspace/factorize_keys.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/chunk_lists.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// The extents of a cache, which is one layer of the sequences of a batch.
struct offload_shape {
  std::int64_t query_heads;          ///< query heads, for all key heads together
  std::int64_t key_heads;            ///< query head h reads key head h / (query_heads / key_heads)
  std::int64_t channels;             ///< channels of a head (the head dimension)
  std::vector<std::int64_t> tokens;  ///< the tokens that each sequence has room for
};

/// Where values of archived chunks, and exact_keys, are kept: in pinned memory of the host, which the device reads, or
/// on the device. On the device they cross no bus, but take the memory that the method is meant to save. This is for
/// hosts that cannot pin enough memory, and for small batches.
enum class value_store : std::uint8_t { host, device };

/// The options of a cache. The options `renewal_growth`, `renewal_until`, `keeps_products` and `search` are for keys in
/// low_rank<rank>; other key stores do not use them.
struct offload_options {
  /// The size of the ring, a multiple of the chunk: the latest ring - chunk + 1 to ring tokens are exact.
  std::int64_t ring = 64;
  std::int64_t slots = 0;    ///< chunks of a head that stay on the device; 0: as many as are selected
  std::int64_t strays = 16;  ///< chunks of a head that may be kept exactly because they lie outside of the directions
  /// A chunk is a stray if the part of its keys outside of the directions is more than so many times that of the
  /// prompt.
  float residual_limit = 3.0F;
  float softmax_scale = 0.0F;              ///< the factor of scores; 0: 1 / sqrt(channels)
  value_store values = value_store::host;  ///< where values of archived chunks are kept
  /// Steps renew the directions of a sequence when it has so many times the tokens of the last fit.
  float renewal_growth = 1.25F;
  /// Steps renew directions only if the last fit had fewer than so many tokens for each direction; 0: never.
  float renewal_until = 8.0F;
  /// Whether products are kept for refit(), which takes 4 * (key_heads * channels)^2 bytes for each sequence.
  bool keeps_products = false;
  /// Whether chunks stay in slots; false: each step fetches all chunks again, for tests and measurements.
  bool keeps_slots = true;
  subspace_options search = {};  ///< the search for directions
};

/// A token for each of some sequences, of any strides.
template <Scalar T>
struct offload_tokens {
  view<T const, 3> queries;  ///< steps x query heads x channels, before their rotation
  view<T const, 3> keys;     ///< steps x key heads x channels, before their rotation
  view<T const, 3> values;   ///< steps x key heads x channels
  /// The sequence of each step, where executors run; null: step i is of sequence i; -1: the step is of none.
  array_view<std::int32_t const> sequences = {};
  /// The chunks that each step reads, where executors run, for a cache whose selector is given_chunks; else empty. A
  /// step with a list that has a fault is reported to exec.wait(), and its sequence left as it is. Faults are: a count
  /// that is negative or more than the list has entries; a number below -1, or of a chunk that is not archived; the
  /// same chunk twice.
  chunk_lists given = {};
};

/// Outputs of a step. Steps of no sequence, or of a sequence that decode() reports, get results of zeros and
/// log-sum-exps of minus infinity.
template <Scalar Result>
struct offload_outputs {
  view<Result, 3> result;  ///< steps x query heads x channels
  /// Steps x query heads: natural logarithms, of the scaled scores attended to; or null.
  view<float, 2> log_sum_exp = {};
};

/// Lengths and counts of a cache's sequences and chunks.
struct offload_statistics {
  std::vector<cached_sequence> sequences;  ///< lengths and other state of each sequence
  std::vector<chunk_usage> usage;          ///< counts of each key head of each sequence

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

/// The progress of a prompt, from begin() over take() to finish().
struct offload_prompt {
  std::int64_t sequence;    ///< the number of the sequence in the batch
  std::int64_t tokens = 0;  ///< tokens taken so far
};

}  // namespace v0
}  // namespace tessera
