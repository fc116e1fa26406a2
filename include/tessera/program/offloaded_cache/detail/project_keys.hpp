// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The programs by which an offloaded cache keeps keys by any Projector: they call its fit(), project() and
/// reconstruct(), which are functions of the host, and so run on executors of the host alone.
///
///     gather_rows         keys of all heads of a token, as a row of floats
///     fit_rows            the basis of a sequence, fitted to its prompt
///     project_rows_of     coefficients of the prompt's archived tokens, and what they lose
///     sum_lost            the sums of that
///     project_leaving     coefficients of the chunk that leaves the ring in a step, and what they lose
///     reconstruct_missed  keys of missed chunks, rotated to their positions, to slots
///
/// A row is what a token has before its rotation: all channels of all key heads. Coefficients are kept rounded to T.
/// Where a prompt is empty, the basis is fitted to the ring's tokens when the first chunk leaves the ring. These
/// programs allocate, as a Projector may. An exception that the Projector throws comes out of the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/projector.hpp>
#include <tessera/config.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/program/offloaded_cache/rebuild_keys.hpp>
#include <tessera/program/offloaded_cache/summarize_chunk.hpp>
#include <tessera/program/subspace/iterate.hpp>
#include <tessera/project/rotary.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// A Projector, and the basis that it has fitted to each sequence of a batch.
template <Projector P>
struct fitted_bases {
  P projector;                                              ///< what fits, projects and reconstructs
  std::vector<std::optional<typename P::basis_type>> each;  ///< of each sequence; none before it is fitted
};

/// What the coefficients of a row keep of it.
struct row_loss {
  double whole;  ///< the sum of the squares of the row
  double lost;   ///< the sum of the squares of the row less what is reconstructed
};

/// Writes a row's coefficients, rounded to the type that is stored, and returns what they lose.
template <Projector P, class T>
row_loss project_row(P const& projector, typename P::basis_type const& basis, std::vector<float> const& row,
                     view<T, 1> to) {
  std::vector<float> coefficients(static_cast<std::size_t>(P::rank));
  std::vector<float> again(row.size());
  projector.project(basis, row.data(), coefficients.data());
  for (std::size_t k = 0; k < coefficients.size(); ++k) {
    T const stored = store<T>(coefficients[k]);
    to[static_cast<std::int64_t>(k)] = stored;
    coefficients[k] = static_cast<float>(load(stored));
  }
  projector.reconstruct(basis, coefficients.data(), again.data());
  row_loss found{0.0, 0.0};
  for (std::size_t i = 0; i < row.size(); ++i) {
    double const key = static_cast<double>(row[i]);
    double const difference = key - static_cast<double>(again[i]);
    found.whole += key * key;
    found.lost += difference * difference;
  }
  return found;
}

/// Writes the keys of all heads of each token as a row. A group for each token.
template <class T>
struct gather_rows {
  static constexpr int lanes = 64;
  struct scratch_type {};

  view<T const, 3> keys;    ///< heads x tokens x channels, before their rotation
  matrix_view<float> rows;  ///< tokens x heads * channels

  TESSERA_FN constexpr std::int64_t groups() const { return keys.extent(1); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      for (std::int64_t i = lane; i < rows.extent(1); i += lanes) {
        rows(which, i) = static_cast<float>(load(keys(i / keys.extent(2), which, i % keys.extent(2))));
      }
    }
  }
};

/// Fits the basis of a sequence. One group.
template <Projector P>
struct fit_rows {
  static constexpr int lanes = 1;
  struct scratch_type {};

  fitted_bases<P>* bases;         ///< the basis of each sequence
  std::int64_t sequence;          ///< number of the sequence in the batch
  matrix_view<float const> rows;  ///< tokens x width, contiguous; without tokens there is no basis afterwards

  [[nodiscard]] std::int64_t groups() const { return 1; }

  template <Group G>
  void operator()(G const&, std::int64_t, scratch_type&) const {
    auto& basis = bases->each[static_cast<std::size_t>(sequence)];
    basis.reset();
    if (rows.extent(0) > 0) {
      basis.emplace(bases->projector.fit(rows.data, rows.extent(0), static_cast<int>(rows.extent(1))));
    }
  }
};

/// Writes coefficients of a prompt's archived tokens. A group for each of them.
template <class T, Projector P>
struct project_rows_of {
  static constexpr int lanes = 1;
  struct scratch_type {};

  fitted_bases<P> const* bases;   ///< the basis of each sequence
  std::int64_t sequence;          ///< number of the sequence in the batch
  matrix_view<float const> rows;  ///< tokens x width
  matrix_view<T> coefficients;    ///< archived tokens x rank
  array_view<row_loss> losses;    ///< what each token's coefficients lose

  [[nodiscard]] std::int64_t groups() const { return coefficients.extent(0); }

  template <Group G>
  void operator()(G const&, std::int64_t which, scratch_type&) const {
    auto const& basis = *bases->each[static_cast<std::size_t>(sequence)];
    float const* const first = &rows(which, 0);
    std::vector<float> const row(first, first + rows.extent(1));
    losses[which] = project_row(bases->projector, basis, row, coefficients[which]);
  }
};

/// Adds up what the coefficients of a prompt lose. One group.
struct sum_lost {
  static constexpr int lanes = 32;
  struct scratch_type {};

  array_view<row_loss const> losses;       ///< of each archived token
  array_view<subspace_measures> measures;  ///< one, for finish_prompt
  std::int64_t tokens;                     ///< tokens of the prompt

  TESSERA_FN constexpr std::int64_t groups() const { return 1; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    for (int lane : group) {
      if (is_first(lane)) {
        double whole = 0.0;
        double lost = 0.0;
        for (std::int64_t i = 0; i < losses.size(); ++i) {
          whole += losses[i].whole;
          lost += losses[i].lost;
        }
        // finish_prompt divides by all of the prompt's tokens.
        double const by = losses.size() > 0 ? static_cast<double>(tokens) / static_cast<double>(losses.size()) : 0.0;
        measures[0] = {by * whole, by * (whole - lost), 0.0F, 1.0F};
      }
    }
  }
};

/// Writes coefficients of the chunk that leaves the ring. A group for each step.
template <class T, class E, Projector P>
struct project_leaving {
  static constexpr int lanes = 1;
  struct scratch_type {};

  offload_extents extents;
  offloaded_memory<T, E> memory;
  offload_step<T> step;
  fitted_bases<P>* bases;  ///< the basis of each sequence

  [[nodiscard]] std::int64_t groups() const { return step.steps(); }

  template <Group G>
  void operator()(G const&, std::int64_t which, scratch_type&) const {
    std::int64_t const sequence = step.sequence(extents, memory.sequences, which);
    step.residuals[which] = -1.0F;
    if (sequence < 0 || !memory.sequences[sequence].archives(extents)) {
      return;
    }
    cached_sequence const known = memory.sequences[sequence];
    std::int64_t const first = known.chunks * extents.chunk;
    auto& basis = bases->each[static_cast<std::size_t>(sequence)];
    if (!basis.has_value()) {
      std::vector<float> rows;
      for (std::int64_t token = first; token <= known.tokens; ++token) {
        std::vector<float> const row = row_of(sequence, token);
        rows.insert(rows.end(), row.begin(), row.end());
      }
      basis.emplace(bases->projector.fit(rows.data(), known.tokens + 1 - first, static_cast<int>(extents.width())));
    }
    row_loss all{0.0, 0.0};
    for (std::int64_t token = first; token < first + extents.chunk; ++token) {
      auto const to = memory.coefficients[known.first * extents.chunk + token];
      row_loss const own = project_row(bases->projector, *basis, row_of(sequence, token), to);
      all.whole += own.whole;
      all.lost += own.lost;
    }
    step.residuals[which] = all.whole > 0.0 ? static_cast<float>(all.lost / all.whole) : 0.0F;
  }

 private:
  std::vector<float> row_of(std::int64_t sequence, std::int64_t token) const {
    std::vector<float> row(static_cast<std::size_t>(extents.width()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] =
          static_cast<float>(load(memory.ring_sources(sequence, token % extents.ring, static_cast<std::int64_t>(i))));
    }
    return row;
  }
};

/// Reconstructs keys of missed chunks. A group for each chunk that may be missed.
template <class T, class E, Projector P>
struct reconstruct_missed {
  static constexpr int lanes = 1;
  struct scratch_type {};

  offload_extents extents;
  offloaded_memory<T, E> memory;
  offload_step<T> step;
  rotary_embedding rotary;
  fitted_bases<P> const* bases;  ///< the basis of each sequence

  [[nodiscard]] std::int64_t groups() const { return step.steps() * extents.key_heads * extents.budget; }

  template <Group G>
  void operator()(G const&, std::int64_t which, scratch_type&) const {
    fetched_chunk const chunk = chunk_of_group(extents, memory, step, which);
    if (chunk.sequence < 0) {
      return;
    }
    auto const& basis = *bases->each[static_cast<std::size_t>(chunk.sequence)];
    std::int64_t const first = chunk.missed.chunk * extents.chunk;
    std::int64_t const row = memory.sequences[chunk.sequence].first * extents.chunk + first;
    T* const to = &memory.slot_keys(chunk.sequence, chunk.head, chunk.missed.slot, 0, 0);
    std::vector<float> coefficients(static_cast<std::size_t>(P::rank));
    std::vector<float> keys(static_cast<std::size_t>(extents.width()));
    for (std::int64_t token = 0; token < extents.chunk; ++token) {
      for (std::size_t k = 0; k < coefficients.size(); ++k) {
        coefficients[k] = static_cast<float>(load(memory.coefficients(row + token, static_cast<std::int64_t>(k))));
      }
      bases->projector.reconstruct(basis, coefficients.data(), keys.data());
      own_channels const own{keys.data() + chunk.head * extents.channels};
      for (std::int64_t channel = 0; channel < extents.channels; ++channel) {
        to[token * extents.channels + channel] = rotated<T>(rotary, first + token, channel, own);
      }
    }
  }

 private:
  struct own_channels {
    float const* values;
    TESSERA_FN float operator()(std::int64_t channel) const { return values[channel]; }
  };
};

}  // namespace v0
}  // namespace tessera
