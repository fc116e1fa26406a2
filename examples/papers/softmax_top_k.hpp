// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Sampling's softmax and top k in one pass over logits (online softmax fused with top k: arXiv 1805.02867, section 4).
///
///     lse = log sum_j exp(x_j)      entries j_1 ... j_K of the largest logits      probability_i = exp(x_(j_i) - lse)
///
/// `largest_entries` is a user's own Reducer; paired_reducer joins it with the library's log-sum-exp, and row_reduction
/// runs the pair over rows of any matrix, on any executor. Bytes: each logit is read once. FLOPs: an exponential, and a
/// comparison with the smallest of the K largest so far, for each logit.
#pragma once

#include <tessera/algorithm/gemm/row_reduction.hpp>
#include <tessera/core/math.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/paired.hpp>

namespace tessera_examples {

using namespace tessera;

/// The K largest values with their indices, from the largest down; of equal ones the first come first. NaNs are left
/// out. Where there are fewer, the last have index -1.
template <int K>
struct largest_entries {
  struct state_type {
    indexed_value<float> of[K];
  };
  using input_type = indexed_value<float>;

  TESSERA_FN constexpr state_type identity() const {
    state_type none{};
    for (auto& entry : none.of) {
      entry = {-infinity, -1};
    }
    return none;
  }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const {
    if (is_before(value, state.of[K - 1])) {
      for (auto& entry : state.of) {  // the smaller of two goes on
        bool const goes_here = is_before(value, entry);
        input_type const behind = goes_here ? entry : value;
        entry = goes_here ? value : entry;
        value = behind;
      }
    }
  }
  TESSERA_FN constexpr void merge(state_type& into, state_type const& other) const {
    for (auto const& entry : other.of) {
      push(into, entry);
    }
  }

 private:
  /// -1, which means none, comes after all other indices.
  TESSERA_FN static constexpr bool is_before(input_type a, input_type b) {
    return a.value > b.value ||
           (a.value == b.value && static_cast<std::uint32_t>(a.index) < static_cast<std::uint32_t>(b.index));
  }
};
static_assert(Reducer<largest_entries<8>>);

/// What is written for each row.
template <int K>
struct write_top_k {
  using reducer = paired_reducer<lse_reducer<float>, largest_entries<K>>;
  array_view<float> log_sum_exp;      ///< rows
  matrix_view<std::int32_t> entries;  ///< rows x K; -1: none
  matrix_view<float> probabilities;   ///< rows x K

  TESSERA_FN void operator()(std::int64_t row, std::int64_t, typename reducer::state_type const& state) const {
    log_sum_exp[row] = lse_reducer<float>{}.value(state.first);
    for (int k = 0; k < K; ++k) {
      entries(row, k) = state.second.of[k].index;
      probabilities(row, k) = tessera::exp(state.second.of[k].value - log_sum_exp[row]);
    }
  }
};

/// The reduction by which rows of logits become log-sum-exps and the K likeliest entries.
template <int K>
using softmax_top_k = row_reduction<typename write_top_k<K>::reducer>;

}  // namespace tessera_examples
