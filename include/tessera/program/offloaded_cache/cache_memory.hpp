// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The memory of an offloaded cache: what algorithm/offloaded_cache/offloaded_cache.hpp plans, and what its programs
/// read and write. One cache is one layer of all sequences of a batch.
///
/// Tokens of a sequence come in chunks of `chunk` tokens; chunk c begins with token c * chunk. The latest tokens are in
/// a ring, where they are exact. Once the ring is full, its oldest chunk leaves it; of such an archived chunk the cache
/// keeps
///
///     its landmark       what queries are scored with, by which its head selects it        on the device
///     its coefficients   keys before their rotation, of all heads, in `rank` directions    on the device
///     its values         a record for each head (value_record)                             in the store: pinned memory
///                                                                                          of the host, or the device
///
/// and, for some chunks, exact keys and values: for those that their landmark represents badly (exact slots 0 to
/// `outliers` - 1 of a head), and for those that their coefficients represent badly (the `strays` after them). Such a
/// chunk is always attended to and never selected. Recently selected chunks are in `slots`, with rebuilt keys and
/// fetched values.
///
/// A sequence has room for `capacity` chunks, which are rows `first` to `first + capacity - 1` of memory that all
/// sequences share one after the other. Everything is contiguous, with the last extent innermost. T: the type of stored
/// keys and values; E: the type of a landmark's elements.
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

/// Extents that all programs of a cache share.
struct offload_extents {
  std::int64_t batch;  ///< sequences of the batch
  std::int64_t
      query_heads;         ///< a multiple of key_heads; query head h belongs to key head h / (query_heads / key_heads)
  std::int64_t key_heads;  ///< key heads of a sequence
  std::int64_t channels;   ///< channels of a head (the head dimension)
  std::int64_t rank;       ///< coefficients of a token
  std::int64_t chunk;      ///< tokens of a chunk
  std::int64_t ring;       ///< tokens of the ring, a multiple of `chunk`
  std::int64_t outliers;   ///< chunks of a head that are exact because of their landmarks
  std::int64_t strays;     ///< chunks of a head that are exact because of their coefficients
  std::int64_t slots;      ///< slots of a head for selected chunks; at least `budget`
  std::int64_t budget;     ///< the most chunks that a head selects
  std::int64_t rows;       ///< chunks of all sequences together
  std::int64_t longest;    ///< the most chunks of a sequence

  /// The query heads of a key head.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t group() const { return query_heads / key_heads; }
  /// The channels of a key of all heads together.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t width() const { return key_heads * channels; }
  /// The exact chunks of a head.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t exact() const { return outliers + strays; }
  /// The archived chunks of the first `tokens` tokens: the ring keeps ring - chunk to ring - 1 tokens.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t archived(std::int64_t tokens) const {
    return max(std::int64_t{0}, tokens - (ring - chunk)) / chunk;
  }

  friend constexpr bool operator==(offload_extents const&, offload_extents const&) = default;
};

/// The largest extents that programs have room for in scratch.
inline constexpr int most_group = 16;             ///< query heads of a key head
inline constexpr int most_channels = 256;         ///< channels of a head
inline constexpr int most_chunk_elements = 8192;  ///< tokens of a chunk * channels
inline constexpr int most_slots = 8192;           ///< slots of a head

/// The chunks of one head that a group scores.
inline constexpr std::int64_t scored_chunks = 128;
/// The tokens of one split of attention. A split begins at a multiple of this in the list of tokens of its
/// part.
inline constexpr std::int64_t attended_tokens = 128;

/// The state of a sequence, in memory of the executor.
struct cached_sequence {
  std::int32_t first;       ///< row of the sequence's first chunk
  std::int32_t capacity;    ///< chunks that it has room for
  std::int32_t tokens;      ///< tokens in the cache
  std::int32_t chunks;      ///< archived chunks, which are the first ones
  double energy;            ///< mean square length of the prompt's keys of all heads; 0 where keys are kept exactly
  float residual;           ///< part of the keys of the last fit that the directions do not hold
  std::int32_t streamed;    ///< chunks archived since the last fit
  float streamed_residual;  ///< sum of these chunks' residuals
  std::int32_t fitted = 0;  ///< tokens of the last fit, which are the first ones of the sequence
  float scale = 1.0F;       ///< factor of keys in the products that are kept

  /// The tokens in the ring, if chunks have `chunk` tokens.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t in_ring(std::int64_t chunk) const { return tokens - chunks * chunk; }
  /// Whether these are lengths of a cache. They are not if the sequence was never begun, and its memory not
  /// initialised.
  [[nodiscard]] TESSERA_FN constexpr bool is_sound(offload_extents const& n) const {
    return first >= 0 && capacity >= 0 && capacity <= n.rows - first && chunks >= 0 && chunks <= capacity &&
           in_ring(n.chunk) >= 0 && in_ring(n.chunk) <= n.ring;
  }
  /// Whether the ring has room for a token. After append_tokens it has none where is_sound() is false. All other
  /// programs ask only this, since each register counts in them.
  [[nodiscard]] TESSERA_FN constexpr bool has_room(offload_extents const& n) const {
    return static_cast<std::uint64_t>(in_ring(n.chunk)) < static_cast<std::uint64_t>(n.ring);
  }
  /// Whether a step, whose token is not yet counted, fills the ring, so that a chunk leaves it.
  [[nodiscard]] TESSERA_FN constexpr bool archives(offload_extents const& n) const {
    return in_ring(n.chunk) + 1 == n.ring && chunks < capacity;
  }
};

/// What `chunk_slots` says of a chunk of a head that is in no slot.
enum class chunk_slot : std::int16_t { archived = -1, exact = -2 };

/// Counts of the chunks that a head has selected.
struct chunk_usage {
  std::int64_t selected;  ///< chunks that it has selected
  std::int64_t resident;  ///< selected chunks that were in a slot already
};

/// The memory of a cache. `slots` and exact chunks hold values and rotated keys. The ring holds values, rotated keys,
/// and keys before their rotation.
template <class T, class E>
struct offloaded_memory {
  array_view<cached_sequence> sequences;  ///< the state of each sequence of the batch

  view<E, 3> landmarks;               ///< rows x key heads x elements
  view<std::int16_t, 2> chunk_slots;  ///< rows x key heads: the chunk's slot, or a chunk_slot
  matrix_view<T> coefficients;        ///< rows * chunk (tokens) x rank
  view<T, 3> directions;              ///< batch x key heads * channels x rank
  view<std::byte, 3> values;          ///< rows x key heads x bytes of a record; the store

  view<T, 4> ring_keys;     ///< batch x key heads x ring x channels; token n at n % ring
  view<T, 4> ring_values;   ///< batch x key heads x ring x channels; token n at n % ring
  view<T, 3> ring_sources;  ///< batch x ring x key heads * channels: keys before their rotation

  view<T, 5> exact_keys;            ///< batch x key heads x exact slots x chunk x channels
  view<T, 5> exact_values;          ///< batch x key heads x exact slots x chunk x channels
  view<std::int32_t, 3> exact_ids;  ///< batch x key heads x exact slots: number of the chunk in its sequence, or -1
  view<float, 3> exact_measures;  ///< batch x key heads x exact slots: least cosine of an outlier, residual of a stray

  view<T, 5> slot_keys;            ///< batch x key heads x slots x chunk x channels
  view<T, 5> slot_values;          ///< batch x key heads x slots x chunk x channels
  view<std::int32_t, 3> slot_ids;  ///< batch x key heads x slots: number of the chunk in its sequence, or -1
  view<std::int32_t, 2> hands;     ///< batch x key heads: the slot from which on a free one is looked for

  view<chunk_usage, 2> usage;  ///< batch x key heads
  view<float, 3> gram;         ///< batch x width x width: products of keys, for refit(); or null
};

/// A chunk that has to be fetched and rebuilt, and its slot.
struct missed_chunk {
  std::int32_t chunk;  ///< number of the chunk in its sequence
  std::int32_t slot;   ///< the slot that it goes to
};

/// Faults for which a step of a sequence is left out.
enum class step_fault : std::uint8_t { none, out_of_range, repeated, never_begun, full };

/// The intermediate results of a step, in a workspace. `steps`: tokens of this step, one for each sequence that takes
/// part.
template <class T>
struct offload_step {
  /// The sequence of each step; null: first + i for step i; -1: the step is of no sequence.
  array_view<std::int32_t const> sequences;
  std::int64_t first = 0;  ///< the sequence of step 0, where `sequences` is null
  /// Where there is a list: the sequence of each step without a fault, else -1.
  array_view<std::int32_t> admitted;

  view<T, 3> queries;     ///< steps x query heads x channels, after their rotation
  view<float, 3> scores;  ///< rows x key heads x group: scaled; -inf for exact chunks; rows are neighbours in memory
  view<scaled_exponentials<float>, 3> score_sums;  ///< steps x blocks of scored_chunks x query heads
  view<std::int32_t, 3> selected;                  ///< steps x key heads x budget: chunks, in ascending order
  view<std::int32_t, 3> selected_slots;            ///< steps x key heads x budget: slots of the selected chunks
  view<std::int32_t, 2> selected_counts;           ///< steps x key heads
  view<missed_chunk, 3> missed;                    ///< steps x key heads x budget
  view<std::int32_t, 2> missed_counts;             ///< steps x key heads
  view<softmax_state<float>, 3> states;            ///< splits x steps x query heads
  view<float, 4> totals;                           ///< splits x steps x query heads x channels
  /// The residual of the chunk that each step archives; -1: there is none.
  array_view<float> residuals;
  matrix_view<double> renewal;  ///< steps x elements of a renewal_memory; or empty

  /// The tokens that the step has room for.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t steps() const { return queries.extent(0); }
  /// The sequence that a step names.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t named(std::int64_t which) const {
    return sequences.data == nullptr ? first + which : std::int64_t{sequences[which]};
  }
  /// The first other step that names the same sequence; -1 if there is none.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t twin(std::int64_t which) const {
    for (std::int64_t other = 0; sequences.data != nullptr && other < steps(); ++other) {
      if (other != which && sequences[other] == sequences[which]) {
        return other;
      }
    }
    return -1;
  }
  /// The fault of a step, or none. If two steps name the same sequence, both have a fault.
  [[nodiscard]] TESSERA_FN constexpr step_fault fault(offload_extents const& n, array_view<cached_sequence const> all,
                                                      std::int64_t which) const {
    std::int64_t const found = named(which);
    if (found == -1) {
      return step_fault::none;
    }
    if (found < 0 || found >= n.batch) {
      return step_fault::out_of_range;
    }
    if (twin(which) >= 0) {
      return step_fault::repeated;
    }
    // A reference, not a copy: is_sound() reads `tokens` last, and another group of this step may be raising it where
    // what it reads before is wrong (append_tokens::admit).
    cached_sequence const& known = all[found];
    if (!known.is_sound(n)) {
      return step_fault::never_begun;
    }
    return known.has_room(n) ? step_fault::none : step_fault::full;
  }
  /// The sequence of a step, after append_tokens; -1 if there is none or a fault.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t sequence(offload_extents const& n,
                                                           array_view<cached_sequence const> all,
                                                           std::int64_t which) const {
    std::int64_t const found = sequences.data == nullptr ? first + which : std::int64_t{admitted[which]};
    return found >= 0 && found < n.batch && all[found].has_room(n) ? found : -1;
  }
  /// A view of steps `from` to `from + count - 1` alone.
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

/// The number of splits over what is on the device from the start: the ring and then the exact chunks.
[[nodiscard]] TESSERA_FN constexpr std::int64_t resident_splits(offload_extents const& n) {
  return divide_up(n.ring + n.exact() * n.chunk, attended_tokens);
}
/// The number of splits over the selected chunks, in their order; they follow the resident splits.
[[nodiscard]] TESSERA_FN constexpr std::int64_t selected_splits(offload_extents const& n) {
  return divide_up(n.budget * n.chunk, attended_tokens);
}

}  // namespace v0
}  // namespace tessera
