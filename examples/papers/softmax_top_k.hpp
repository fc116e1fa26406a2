// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Sampling's softmax and top k in one pass over logits (online softmax fused with top k: arXiv 1805.02867, section 4).
///
///     lse = log sum_j exp(x_j)      entries j_1 ... j_K of the largest logits      probability_i = exp(x_(j_i) - lse)
///
/// paired_reducer joins the largest entries with the log-sum-exp, and row_reduction runs the pair over rows of any
/// matrix, on any executor. What is written of its states is a user's own RowFinish: the library's write_top_entries
/// writes log-probabilities. Bytes: each logit is read once. FLOPs: an exponential, and a comparison with the smallest
/// of the K largest so far, for each logit.
#pragma once

#include <tessera/algorithm/gemm/row_reduction.hpp>
#include <tessera/core/math.hpp>
#include <tessera/reduce/largest_entries.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/paired.hpp>

namespace tessera_examples {

using namespace tessera;

/// What is written for each row.
template <int K>
struct write_top_k {
  using reducer = paired_reducer<lse_reducer<float>, largest_entries_reducer<K>>;
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
