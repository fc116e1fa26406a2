// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Parts of a vocabulary for tests of ranks: of different sizes, and with three ranks or more one of them empty.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/algorithm/loss/sequence_parallel.hpp>
#include <tessera/view/matrix_view.hpp>

#include "support/loss_reference.hpp"

namespace tessera_test {

/// The first entry of a rank, or the number of entries for the rank after the last. Rank 1 of three or more has none.
inline std::int64_t first_entry_of(int rank, int ranks, std::int64_t vocabulary) {
  bool const has_empty = ranks > 2;
  std::int64_t const parts = has_empty ? ranks - 1 : ranks;
  std::int64_t const before = has_empty && rank > 1 ? rank - 1 : rank;
  return vocabulary * before * (before + 1) / (parts * (parts + 1));
}

inline tessera::vocabulary_part part_of_rank(int rank, int ranks, std::int64_t vocabulary) {
  return {first_entry_of(rank, ranks, vocabulary), vocabulary};
}

/// The rows of an n x channels matrix, or the values of a list (1 channel), from `first` to before `end`.
template <class T>
std::vector<T> rows_between(std::vector<T> const& rows, std::int64_t first, std::int64_t end, std::int64_t channels) {
  return rows.empty() ? rows : std::vector<T>(rows.begin() + first * channels, rows.begin() + end * channels);
}

/// Whether each rank of a loss has its part of the hidden states alone.
template <class Loss>
constexpr bool is_spread = false;
template <class Loss>
constexpr bool is_spread<tessera::sequence_parallel<Loss>> = true;

/// The hidden states that a rank of a loss has: equal parts, or all.
template <class Loss, class T>
tessera::matrix_view<T const> hidden_of_rank(tessera::matrix_view<T const> const& hidden, int rank, int ranks) {
  std::int64_t const parts = is_spread<Loss> ? ranks : 1;
  std::int64_t const rows = hidden.extent(0) / parts;
  return {hidden.data + rank % parts * rows * hidden.extent(1), {rows, hidden.extent(1)}};
}

/// A problem with a rank's rows of the classifier and of the bias.
template <class T, class Label>
loss_problem<T, Label> problem_of_rank(loss_problem<T, Label> const& p, int rank, int ranks) {
  std::int64_t const first = first_entry_of(rank, ranks, p.vocabulary);
  std::int64_t const end = first_entry_of(rank + 1, ranks, p.vocabulary);
  auto own = p;
  own.vocabulary = end - first;
  own.classifier = rows_between(p.classifier, first, end, p.channels);
  own.bias = rows_between(p.bias, first, end, 1);
  return own;
}

}  // namespace tessera_test
