// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Where everything of an offloaded cache lies: what algorithm/offloaded_cache/offloaded_cache.hpp plans, and what its
/// programs read and write. One cache is one layer of all sequences of a batch.
///
/// Tokens of a sequence come in chunks of `chunk` tokens; chunk c holds tokens c * chunk and on. The latest tokens are
/// in a ring, exact. Once the ring is full the oldest chunk leaves it (an archived chunk) and is known by
///
///     its landmark       what queries are scored with, by which its head selects it        on the device
///     its coefficients   keys before their rotation, of all heads, in `rank` directions    on the device
///     its values         a record for each head (value_record)                             in the store: pinned memory
///                                                                                          of the host, or the device
///
/// and, for some chunks, exact keys and values: those whose landmark does not stand for them (places 0 to
/// `outliers` - 1 of a head), and those whose coefficients do not (the `strays` after them). Such a chunk is always
/// attended to and never selected. Chunks that were selected lately lie in `slots`, keys rebuilt and values fetched.
///
/// A sequence has room for `capacity` chunks, which are rows `first` to `first + capacity - 1` of what is kept for all
/// sequences one behind the other. Everything is contiguous, the last extent first. T: what keys and values are
/// stored as; E: an element of a landmark.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// Numbers that all programs of a cache share.
struct offload_extents {
  std::int64_t batch;  ///< sequences
  std::int64_t
      query_heads;         ///< a multiple of key_heads; query head h belongs to key head h / (query_heads / key_heads)
  std::int64_t key_heads;  ///< of a sequence
  std::int64_t channels;   ///< of a head
  std::int64_t rank;       ///< coefficients of a token
  std::int64_t chunk;      ///< tokens
  std::int64_t ring;       ///< tokens, a multiple of `chunk`
  std::int64_t outliers;   ///< chunks of a head that are exact because of their landmarks
  std::int64_t strays;     ///< chunks of a head that are exact because of their coefficients
  std::int64_t slots;      ///< chunks of a head that are resident; at least `budget`
  std::int64_t budget;     ///< chunks that a head selects at most
  std::int64_t rows;       ///< chunks of all sequences together
  std::int64_t longest;    ///< chunks of a sequence at most

  /// Query heads of a key head.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t group() const { return query_heads / key_heads; }
  /// Channels of a key of all heads.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t width() const { return key_heads * channels; }
  /// Exact chunks of a head.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t exact() const { return outliers + strays; }
  /// Chunks of the first `tokens` tokens that are archived: the ring keeps ring - chunk to ring - 1 tokens.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t archived(std::int64_t tokens) const {
    return max(std::int64_t{0}, tokens - (ring - chunk)) / chunk;
  }

  friend constexpr bool operator==(offload_extents const&, offload_extents const&) = default;
};

/// What programs have room for in scratch.
inline constexpr int most_group = 16;             ///< query heads of a key head
inline constexpr int most_channels = 256;         ///< of a head
inline constexpr int most_chunk_elements = 8192;  ///< tokens of a chunk * channels
inline constexpr int most_slots = 8192;           ///< of a head

/// Chunks of one head that a group scores.
inline constexpr std::int64_t scored_chunks = 128;
/// Tokens that one share of attention is over. They begin at multiples of this in the list of tokens of their part.
inline constexpr std::int64_t attended_tokens = 128;

/// What is known of a sequence; where executors run.
struct cached_sequence {
  std::int32_t first;       ///< row of its first chunk
  std::int32_t capacity;    ///< chunks
  std::int32_t tokens;      ///< that are cached
  std::int32_t chunks;      ///< that are archived: the first ones
  double energy;            ///< mean square length of keys of the prompt, of all heads
  float residual;           ///< share of the latest keys that directions were fitted to which they do not hold
  std::int32_t streamed;    ///< chunks archived since
  float streamed_residual;  ///< the sum of their shares
  std::int32_t fitted = 0;  ///< tokens that the directions were fitted to, the first ones
  float scale = 1.0F;       ///< what keys are multiplied by in the products that are kept

  /// Tokens in the ring, of chunks of `chunk` tokens.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t in_ring(std::int64_t chunk) const { return tokens - chunks * chunk; }
  /// Whether these are lengths of a cache: not so where a sequence was never begun, and memory holds what it did.
  [[nodiscard]] TESSERA_FN constexpr bool is_sound(offload_extents const& n) const {
    return first >= 0 && capacity >= 0 && capacity <= n.rows - first && chunks >= 0 && chunks <= capacity &&
           in_ring(n.chunk) >= 0 && in_ring(n.chunk) <= n.ring;
  }
  /// Whether the ring has room for a token. From append_tokens on it has none where is_sound() is false: that is all
  /// that the other programs ask, in which each register counts.
  [[nodiscard]] TESSERA_FN constexpr bool has_room(offload_extents const& n) const {
    return static_cast<std::uint64_t>(in_ring(n.chunk)) < static_cast<std::uint64_t>(n.ring);
  }
  /// Whether a step, whose token is not counted yet, fills the ring, so that a chunk leaves it.
  [[nodiscard]] TESSERA_FN constexpr bool archives(offload_extents const& n) const {
    return in_ring(n.chunk) + 1 == n.ring && chunks < capacity;
  }
};

/// Where a chunk of a head is, beside its archive: a slot, or one of these.
enum class chunk_place : std::int16_t { archived = -1, exact = -2 };

/// What a head did so far.
struct chunk_usage {
  std::int64_t selected;  ///< chunks
  std::int64_t resident;  ///< of which so many were in a slot already
};

/// The cache itself. `slots` and exact chunks hold keys after their rotation, and values; the ring keys before it, too.
template <class T, class E>
struct offloaded_memory {
  array_view<cached_sequence> sequences;  ///< lengths of each sequence of the batch

  view<E, 3> landmarks;          ///< rows x key heads x elements
  view<std::int16_t, 2> places;  ///< rows x key heads: a slot or a chunk_place
  matrix_view<T> coefficients;   ///< rows * chunk (tokens) x rank
  view<T, 3> directions;         ///< batch x key heads * channels x rank
  view<std::byte, 3> values;     ///< rows x key heads x bytes of a record; the store

  view<T, 4> ring_keys;     ///< batch x key heads x ring x channels; token n at n % ring
  view<T, 4> ring_values;   ///< batch x key heads x ring x channels; token n at n % ring
  view<T, 3> ring_sources;  ///< batch x ring x key heads * channels: keys before their rotation

  view<T, 5> exact_keys;            ///< batch x key heads x places x chunk x channels
  view<T, 5> exact_values;          ///< batch x key heads x places x chunk x channels
  view<std::int32_t, 3> exact_ids;  ///< batch x key heads x places: chunk of the sequence, or -1
  view<float, 3> exact_measures;    ///< batch x key heads x places: least cosine of an outlier, residual of a stray

  view<T, 5> slot_keys;            ///< batch x key heads x slots x chunk x channels
  view<T, 5> slot_values;          ///< batch x key heads x slots x chunk x channels
  view<std::int32_t, 3> slot_ids;  ///< batch x key heads x slots: chunk of the sequence, or -1
  view<std::int32_t, 2> hands;     ///< batch x key heads: the slot that is looked at first when one is needed

  view<chunk_usage, 2> usage;  ///< batch x key heads
  view<float, 3> gram;         ///< batch x width x width: products of keys, for refit(); or null
};

/// A chunk that has to be fetched and rebuilt, and where to.
struct missed_chunk {
  std::int32_t chunk;  ///< of its sequence
  std::int32_t slot;   ///< where it goes
};

/// What can be wrong with a step of a sequence, which it is then left out for.
enum class step_fault : std::uint8_t { none, out_of_range, repeated, never_begun, full };

/// What one step leaves on its way; in a workspace. `steps`: tokens of this step, one for each sequence that takes
/// part.
template <class T>
struct offload_step {
  array_view<std::int32_t const> sequences;  ///< of each step; null: sequence first + i is i's; -1: none
  std::int64_t first = 0;                    ///< the sequence of step 0, where there is no list
  array_view<std::int32_t> admitted;         ///< where there is one: those that a step may be of; else -1

  view<T, 3> queries;     ///< steps x query heads x channels: rotated
  view<float, 3> scores;  ///< rows x key heads x group: scaled; -inf for exact chunks; rows lie side by side
  view<scaled_exponentials<float>, 3> score_sums;  ///< steps x blocks of scored_chunks x query heads
  view<std::int32_t, 3> selected;                  ///< steps x key heads x budget: chunks, ascending
  view<std::int32_t, 3> selected_slots;            ///< steps x key heads x budget: where selected chunks are
  view<std::int32_t, 2> selected_counts;           ///< steps x key heads
  view<missed_chunk, 3> missed;                    ///< steps x key heads x budget
  view<std::int32_t, 2> missed_counts;             ///< steps x key heads
  view<softmax_state<float>, 3> states;            ///< shares x steps x query heads
  view<float, 4> totals;                           ///< shares x steps x query heads x channels
  array_view<float> residuals;                     ///< of each step: of the chunk that is archived; -1: none
  matrix_view<double> renewal;                     ///< steps x elements of a renewal_memory; or none

  /// Tokens that the step has room for.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t steps() const { return queries.extent(0); }
  /// The sequence that a step is said to be of.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t named(std::int64_t which) const {
    return sequences.data == nullptr ? first + which : std::int64_t{sequences[which]};
  }
  /// What is wrong with a step, or nothing (none). Steps of a sequence that another step names, too, are all wrong.
  [[nodiscard]] TESSERA_FN constexpr step_fault fault(offload_extents const& n, array_view<cached_sequence const> all,
                                                      std::int64_t which) const {
    std::int64_t const found = named(which);
    if (found == -1) {
      return step_fault::none;
    }
    if (found < 0 || found >= n.batch) {
      return step_fault::out_of_range;
    }
    for (std::int64_t other = 0; sequences.data != nullptr && other < steps(); ++other) {
      if (other != which && sequences[other] == found) {
        return step_fault::repeated;
      }
    }
    cached_sequence const known = all[found];
    if (!known.is_sound(n)) {
      return step_fault::never_begun;
    }
    return known.has_room(n) ? step_fault::none : step_fault::full;
  }
  /// The sequence of a step, from append_tokens on; -1 for none, or if there is a fault.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t sequence(offload_extents const& n,
                                                           array_view<cached_sequence const> all,
                                                           std::int64_t which) const {
    std::int64_t const found = sequences.data == nullptr ? first + which : std::int64_t{admitted[which]};
    return found >= 0 && found < n.batch && all[found].has_room(n) ? found : -1;
  }
  /// Steps `from` to `from + count - 1` alone.
  [[nodiscard]] constexpr offload_step part(std::int64_t from, std::int64_t count) const {
    offload_step made = *this;
    made.first = first + from;
    if (sequences.data != nullptr) {
      made.sequences = sequences.slice(0, from, count);
      made.admitted = admitted.slice(0, from, count);
    }
    made.queries = queries.slice(0, from, count);
    made.score_sums = score_sums.slice(0, from, count);
    made.selected = selected.slice(0, from, count);
    made.selected_slots = selected_slots.slice(0, from, count);
    made.selected_counts = selected_counts.slice(0, from, count);
    made.missed = missed.slice(0, from, count);
    made.missed_counts = missed_counts.slice(0, from, count);
    made.states = states.slice(1, from, count);
    made.totals = totals.slice(1, from, count);
    made.residuals = residuals.slice(0, from, count);
    made.renewal = renewal.slice(0, from, count);
    return made;
  }
};

/// Shares of attention over what is there from the start, the ring and then the exact chunks.
[[nodiscard]] TESSERA_FN constexpr std::int64_t resident_shares(offload_extents const& n) {
  return divide_up(n.ring + n.exact() * n.chunk, attended_tokens);
}
/// Shares over the selected chunks, in their order; they come after the others.
[[nodiscard]] TESSERA_FN constexpr std::int64_t selected_shares(offload_extents const& n) {
  return divide_up(n.budget * n.chunk, attended_tokens);
}

}  // namespace v0
}  // namespace tessera
