// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The last programs of a step of an offloaded cache. If a step fills the ring, they archive its oldest chunk:
///
///     project_archived    its coefficients, and the share of its keys that the directions do not hold
///     archive_chunks      its landmark and its values; whether it is exact from now on, and instead of which chunk
///     add_to_gram         its products, where the cache keeps those
///     finish_steps        the new token counts, and new directions where it is time for them
///
/// The outliers of a head are always those of its archived chunks whose least cosines are the least. A chunk is a stray
/// if a large part of its keys lies outside of the directions; the strays of a head are the chunks with the largest
/// such parts.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/program/offloaded_cache/renew_directions.hpp>
#include <tessera/program/offloaded_cache/summarize_chunk.hpp>
#include <tessera/program/offloaded_cache/value_record.hpp>
#include <tessera/program/subspace/large_products.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

/// Writes coefficients of the chunk that leaves the ring, and the part of its keys that the directions do not hold. A
/// group for each step.
template <class T, class E>
struct project_archived {
  using value_type = T;
  static constexpr int lanes = 256;
  struct scratch_type {};

  offload_extents extents;
  offloaded_memory<T, E> memory;
  offload_step<T> step;

  TESSERA_FN constexpr std::int64_t groups() const { return step.steps(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const sequence = step.sequence(extents, memory.sequences, which);
    if (sequence < 0 || !memory.sequences[sequence].archives(extents)) {
      set_residual(group, which, -1.0F);
      return;
    }
    cached_sequence const known = memory.sequences[sequence];
    std::int64_t const first = known.chunks * extents.chunk;
    std::int64_t const row = known.first * extents.chunk + first;
    per_lane<double, G> held;
    per_lane<double, G> whole;
    for (int lane : group) {
      held[lane] = whole[lane] = 0.0;
      for (std::int64_t at = lane; at < extents.chunk * extents.rank; at += lanes) {
        std::int64_t const token = at / extents.rank;
        float const total = coefficient(sequence, (first + token) % extents.ring, at % extents.rank);
        memory.coefficients(row + token, at % extents.rank) = store<T>(total);
        held[lane] += static_cast<double>(total) * static_cast<double>(total);
      }
      for (std::int64_t at = lane; at < extents.chunk * extents.width(); at += lanes) {
        std::int64_t const index = (first + at / extents.width()) % extents.ring;
        auto const key = static_cast<double>(load(memory.ring_sources(sequence, index, at % extents.width())));
        whole[lane] += key * key;
      }
    }
    double const all = sum(group, whole);
    double const left = 1.0 - sum(group, held) / (all > 0.0 ? all : 1.0);
    set_residual(group, which, all > 0.0 && left > 0.0 ? static_cast<float>(left) : 0.0F);
  }

 private:
  TESSERA_FN float coefficient(std::int64_t sequence, std::int64_t index, std::int64_t k) const {
    float total = 0.0F;
    for (std::int64_t i = 0; i < extents.width(); ++i) {
      total = multiply_add(static_cast<float>(load(memory.ring_sources(sequence, index, i))),
                           static_cast<float>(load(memory.directions(sequence, i, k))), total);
    }
    return total;
  }

  template <Group G>
  TESSERA_FN void set_residual(G const& group, std::int64_t which, float residual) const {
    for (int lane : group) {
      if (is_first(lane)) {
        step.residuals[which] = residual;
      }
    }
  }
};

/// Writes the landmark and the values of the chunk that leaves the ring, and decides whether it stays exact. A group
/// for each key head of each step.
template <class T, ChunkSelector S, class Codec>
struct archive_chunks {
  using value_type = T;
  using element_type = typename chunk_landmarks<S>::element_type;
  using record = value_record<Codec, T>;
  static constexpr int lanes = 32;
  static constexpr int most_words = 160;  ///< 16-byte words of the largest record that is put together in the scratch
  /// Records of up to 2560 bytes are put together here, since the bus is slow with single bytes.
  struct scratch_type {
    staged_keys<T> staged;            ///< keys of the chunk and head, after their rotation, and their mean
    record_words record[most_words];  ///< the record of its values, if it fits
  };

  offload_extents extents;
  offloaded_memory<T, element_type> memory;
  offload_step<T> step;
  S selector;
  /// A chunk is a stray if the part of its keys outside of the directions is more than so many times that at their last
  /// fit.
  float residual_limit;
  static constexpr float least_residual = 0x1p-10F;  ///< the least residual that counts; smaller ones are rounding

  TESSERA_FN constexpr std::int64_t groups() const { return step.steps() * extents.key_heads; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const at = which / extents.key_heads;
    std::int64_t const head = which % extents.key_heads;
    std::int64_t const sequence = step.sequence(extents, memory.sequences, at);
    if (sequence < 0 || !memory.sequences[sequence].archives(extents)) {
      return;
    }
    cached_sequence const known = memory.sequences[sequence];
    std::int64_t const row = known.first + known.chunks;
    ring_part const values{memory.ring_values[sequence][head], known.chunks * extents.chunk, extents.ring};
    std::int64_t const words =
        record::bytes(extents.chunk, extents.channels) / static_cast<std::int64_t>(sizeof(record_words));
    auto* const store = reinterpret_cast<record_words*>(&memory.values(row, head, 0));
    auto* const to = reinterpret_cast<std::byte*>(words <= most_words ? scratch.record : store);
    group.sync();  // all lanes have read the scratch
    for (int lane : group) {
      for (std::int64_t i = lane; i < min(words, std::int64_t{most_words}); i += lanes) {
        scratch.record[i] = {};
      }
    }
    group.sync();
    for (int lane : group) {
      for (std::int64_t i = lane; i < extents.chunk * extents.channels; i += lanes) {
        std::int64_t const index = (known.chunks * extents.chunk + i / extents.channels) % extents.ring;
        scratch.staged.keys[i] = memory.ring_keys(sequence, head, index, i % extents.channels);
      }
      for (std::int64_t piece = lane; piece < record::pieces(extents.chunk, extents.channels); piece += lanes) {
        record::put(values, piece, extents.chunk, extents.channels, to);
      }
    }
    element_type* const kept = memory.landmarks.data + memory.landmarks.offset(row, head, 0);
    float const least = summarize_chunk(group, selector, scratch.staged, extents.channels, kept);
    for (int lane : group) {
      for (std::int64_t i = lane; words <= most_words && i < words; i += lanes) {
        store[i] = scratch.record[i];
      }
    }
    exact_slot const taken = choose(group, sequence, head, least, step.residuals[at], known.residual);
    group.sync();  // all have chosen
    keep(group, sequence, head, known, taken, values, scratch);
  }

  /// Where a chunk is kept exactly, and by which measure.
  struct exact_slot {
    std::int64_t index;  ///< index among the head's exact chunks; -1: the chunk is not kept exactly
    float measure;       ///< least cosine of an outlier, residual of a stray
  };
  /// Finds a slot among the exact chunks for the head's oldest chunk in the ring, if it gets one. `usual`: the
  /// residual of the last fit.
  template <Group G>
  TESSERA_FN exact_slot choose(G const& group, std::int64_t sequence, std::int64_t head, float cosine, float residual,
                               float usual) const {
    exact_slot const outlier = find(group, sequence, head, 0, extents.outliers, cosine, is_more{}, worse_outlier{});
    if (outlier.index >= 0 || !(residual > residual_limit * max(usual, least_residual))) {
      return outlier;
    }
    return find(group, sequence, head, extents.outliers, extents.exact(), residual, is_less{}, worse_stray{});
  }

  /// Notes the slot of the chunk, and that the chunk that was there before is archived.
  TESSERA_FN void note(std::int64_t sequence, std::int64_t head, cached_sequence const& known, exact_slot taken) const {
    auto const archived = static_cast<std::int16_t>(chunk_slot::archived);
    auto const exact = static_cast<std::int16_t>(chunk_slot::exact);
    memory.chunk_slots(known.first + known.chunks, head) = taken.index >= 0 ? exact : archived;
    if (taken.index >= 0) {
      std::int32_t& id = memory.exact_ids(sequence, head, taken.index);
      if (id >= 0) {
        memory.chunk_slots(known.first + id, head) = archived;
      }
      id = known.chunks;
      memory.exact_measures(sequence, head, taken.index) = taken.measure;
    }
  }

 private:
  struct ring_part {
    view<T const, 2> ring;
    std::int64_t first;
    std::int64_t length;
    TESSERA_FN T operator()(std::int64_t token, std::int64_t channel) const {
      return ring((first + token) % length, channel);
    }
  };

  /// A slot that a chunk may take: an empty one if there is any, else that of the chunk that deserves its slot least.
  struct candidate {
    std::int32_t index = -1;  ///< index of the slot; -1: no slot
    std::int32_t id = -1;     ///< the chunk in this slot; -1: the slot is empty
    float measure = 0.0F;
  };
  /// The outlier to be replaced: the one with the larger cosine; of equal cosines the later chunk.
  struct worse_outlier {
    TESSERA_FN candidate operator()(candidate const& a, candidate const& b) const {
      if (a.index < 0 || b.index < 0) {
        return a.index < 0 ? b : a;
      }
      if (a.id < 0 || b.id < 0) {
        return a.id < 0 && (b.id >= 0 || a.index < b.index) ? a : b;
      }
      return a.measure > b.measure || (a.measure == b.measure && a.id > b.id) ? a : b;
    }
  };
  struct worse_stray {
    TESSERA_FN candidate operator()(candidate const& a, candidate const& b) const {
      if (a.index < 0 || b.index < 0) {
        return a.index < 0 ? b : a;
      }
      if (a.id < 0 || b.id < 0) {
        return a.id < 0 && (b.id >= 0 || a.index < b.index) ? a : b;
      }
      return a.measure < b.measure || (a.measure == b.measure && a.index < b.index) ? a : b;
    }
  };

  /// Finds a slot from `first` to `end` that is empty, or else whose chunk's measure is_worse than the new one.
  template <Group G, class IsWorse, class Worse>
  TESSERA_FN exact_slot find(G const& group, std::int64_t sequence, std::int64_t head, std::int64_t first,
                             std::int64_t end, float measure, IsWorse const& is_worse, Worse const& worse) const {
    per_lane<candidate, G> own;
    for (int lane : group) {
      own[lane] = {};
      for (std::int64_t index = first + lane; index < end; index += lanes) {
        std::int32_t const id = memory.exact_ids(sequence, head, index);
        float const known = memory.exact_measures(sequence, head, index);
        if (id < 0 || is_worse(known, measure)) {
          own[lane] = worse(own[lane], {static_cast<std::int32_t>(index), id, known});
        }
      }
    }
    return {reduce(group, own, worse).index, measure};
  }
  struct is_more {
    TESSERA_FN bool operator()(float known, float measure) const { return known > measure; }
  };
  struct is_less {
    TESSERA_FN bool operator()(float known, float measure) const { return known < measure; }
  };

  template <Group G>
  TESSERA_FN void keep(G const& group, std::int64_t sequence, std::int64_t head, cached_sequence const& known,
                       exact_slot taken, ring_part const& values, scratch_type const& scratch) const {
    for (int lane : group) {
      for (std::int64_t i = lane; taken.index >= 0 && i < extents.chunk * extents.channels; i += lanes) {
        std::int64_t const token = i / extents.channels;
        std::int64_t const channel = i % extents.channels;
        memory.exact_keys(sequence, head, taken.index, token, channel) = scratch.staged.keys[i];
        memory.exact_values(sequence, head, taken.index, token, channel) = values(token, channel);
      }
      if (is_first(lane)) {
        note(sequence, head, known, taken);
      }
    }
  }
};

/// Adds the new token to the sums of products. A group for each channel of the keys of all heads of each step.
template <class T, class E>
struct add_to_gram {
  static constexpr int lanes = 128;
  struct scratch_type {};

  offload_extents extents;
  offloaded_memory<T, E> memory;
  offload_step<T> step;

  TESSERA_FN constexpr std::int64_t groups() const { return step.steps() * extents.width(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const at = which / extents.width();
    std::int64_t const row = which % extents.width();
    std::int64_t const sequence = step.sequence(extents, memory.sequences, at);
    if (sequence < 0) {
      return;
    }
    std::int64_t const index = memory.sequences[sequence].tokens % extents.ring;
    float const scale = memory.sequences[sequence].scale;
    float const own = scale * static_cast<float>(load(memory.ring_sources(sequence, index, row)));
    for (int lane : group) {
      for (std::int64_t column = lane; column < extents.width(); column += lanes) {
        float const other = scale * static_cast<float>(load(memory.ring_sources(sequence, index, column)));
        float& sum = memory.gram(sequence, row, column);
        float const added = multiply_add(own, other, sum);
        bool const is_too_large = absolute(added) > most_key_product;  // such a key outweighs all others anyway
        sum = is_too_large ? (added < 0.0F ? -most_key_product : most_key_product) : added;
      }
    }
  }
};

/// Counts tokens and archived chunks, and renews directions where the rule says so. A group for each step.
template <class T, class E>
struct finish_steps {
  static constexpr int lanes = 256;
  using scratch_type = typename renew_directions<T, E>::scratch_type;

  offload_extents extents;
  offloaded_memory<T, E> memory;
  offload_step<T> step;
  renewal_rule rule;  ///< when directions are renewed

  TESSERA_FN constexpr std::int64_t groups() const { return step.steps(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const sequence = step.sequence(extents, memory.sequences, which);
    group.sync();  // all have read how many tokens there are
    for (int lane : group) {
      if (sequence >= 0 && is_first(lane)) {
        cached_sequence& known = memory.sequences[sequence];
        if (known.archives(extents)) {
          known.chunks += 1;
          known.streamed += 1;
          known.streamed_residual += step.residuals[which];
        }
        known.tokens += 1;
      }
    }
    if (sequence < 0 || !rule.can_be(extents)) {
      return;
    }
    group.sync();  // the counts are written
    if (rule.is_due(extents, memory.sequences[sequence])) {
      renew_directions<T, E>{extents, memory, sequence, &step.renewal(which, 0)}.run(group, scratch);
    }
  }
};

}  // namespace v0
}  // namespace tessera
