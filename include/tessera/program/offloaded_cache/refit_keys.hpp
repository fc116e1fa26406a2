// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The programs by which an offloaded cache changes to new directions when its caller asks for them: relate_directions,
/// turn_coefficients, finish_refit. (Steps change them by program/offloaded_cache/renew_directions.hpp.) The parts of
/// keys outside of the old directions stay lost; the new directions are better for later keys.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/program/subspace/iterate.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Computes relation = before^T after. A group for each row.
template <class T>
struct relate_directions {
  static constexpr int lanes = 64;
  struct scratch_type {};

  matrix_view<T const> before;  ///< width x rank
  matrix_view<T const> after;   ///< width x rank
  matrix_view<float> relation;  ///< rank x rank

  TESSERA_FN constexpr std::int64_t groups() const { return relation.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      for (std::int64_t k = lane; k < relation.extent(1); k += lanes) {
        double sum = 0.0;
        for (std::int64_t i = 0; i < before.extent(0); ++i) {
          sum += static_cast<double>(load(before(i, which))) * static_cast<double>(load(after(i, k)));
        }
        relation(which, k) = static_cast<float>(sum);
      }
    }
  }
};

/// Computes coefficients = coefficients * relation for the archived chunks of a sequence. A group for each token that
/// there is room for.
template <class T, class E>
struct turn_coefficients {
  static constexpr int lanes = 64;
  struct scratch_type {
    float before[key_directions];  ///< a token's coefficients in the old directions
  };

  offload_extents extents;
  offloaded_memory<T, E> memory;
  matrix_view<float const> relation;  ///< old directions in the new ones: rank x rank
  std::int64_t sequence;              ///< number of the sequence in the batch
  std::int64_t capacity;              ///< chunks that the sequence has room for

  TESSERA_FN constexpr std::int64_t groups() const { return capacity * extents.chunk; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    cached_sequence const known = memory.sequences[sequence];
    if (which >= known.chunks * extents.chunk) {
      return;
    }
    auto const row = memory.coefficients[known.first * extents.chunk + which];
    group.sync();  // all lanes have read the scratch
    for (int lane : group) {
      for (std::int64_t k = lane; k < extents.rank; k += lanes) {
        scratch.before[k] = static_cast<float>(load(row[k]));
      }
    }
    group.sync();
    for (int lane : group) {
      for (std::int64_t k = lane; k < extents.rank; k += lanes) {
        float total = 0.0F;
        for (std::int64_t j = 0; j < extents.rank; ++j) {
          total = multiply_add(scratch.before[j], relation(j, k), total);
        }
        row[k] = store<T>(total);
      }
    }
  }
};

/// Copies the new directions to the cache, and forgets keys that were rebuilt with the old ones. A group for each key
/// head.
template <class T, class E>
struct finish_refit {
  static constexpr int lanes = 256;
  struct scratch_type {};

  offload_extents extents;
  offloaded_memory<T, E> memory;
  matrix_view<T const> directions;               ///< the new directions
  std::int64_t sequence;                         ///< number of the sequence in the batch
  array_view<subspace_measures const> measures;  ///< measures of the new directions

  TESSERA_FN constexpr std::int64_t groups() const { return extents.key_heads; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    cached_sequence& known = memory.sequences[sequence];
    std::int64_t const first = which * extents.channels;
    for (int lane : group) {
      for (std::int64_t at = lane; at < extents.channels * extents.rank; at += lanes) {
        std::int64_t const row = first + at / extents.rank;
        memory.directions(sequence, row, at % extents.rank) = directions(row, at % extents.rank);
      }
      for (std::int64_t slot = lane; slot < extents.slots; slot += lanes) {
        std::int32_t& id = memory.slot_ids(sequence, which, slot);
        if (id >= 0) {
          memory.chunk_slots(known.first + id, which) = static_cast<std::int16_t>(chunk_slot::archived);
        }
        id = -1;
      }
      if (which == 0 && is_first(lane)) {
        subspace_measures const found = measures[0];
        auto const scale = static_cast<double>(known.scale);
        known.energy = known.tokens > 0 ? found.trace / (scale * scale * known.tokens) : 0.0;
        known.residual = found.trace > 0.0 ? static_cast<float>(max(1.0 - found.held / found.trace, 0.0)) : 0.0F;
        known.fitted = known.tokens;
        known.streamed = 0;
        known.streamed_residual = 0.0F;
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
