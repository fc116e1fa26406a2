// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `write_top_entries<K>`: the RowFinish that writes the K likeliest entries of each token and their log-probabilities,
/// from the states of a loss whose logits are never in memory.
///
///     #include <tessera/cut_cross_entropy.hpp>
///     #include <tessera/exec/buffer.hpp>
///     #include <tessera/exec/cpu.hpp>
///     #include <tessera/reduce/write_top_entries.hpp>
///
///     using top = tessera::write_top_entries<4>;
///     using loss = tessera::cut_cross_entropy_of<tessera::bfloat16, top::reducer>;
///     tessera::cpu exec;
///     auto const plan = loss::plan_forward(exec, {tokens, vocabulary, channels});
///     tessera::buffer<std::byte> memory(exec, plan.bytes());
///     loss::inputs<std::int64_t> const inputs{hidden, classifier, labels};
///     loss::forward(exec, inputs, {}, {.loss = value}, tessera::workspace(plan, memory),
///                   top{entries, log_probabilities});
///
/// It may also be the finish of row_reduction, for logits that are in memory.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/reduce/entropy.hpp>
#include <tessera/reduce/largest_entries.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/reduce/paired.hpp>
#include <tessera/reduce/row_finish.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Writes, for each token that it is called for, the entries of its K largest logits, from the largest down, the first
/// of equal ones first, and log-probabilities, logit - log-sum-exp of all logits. A matrix may be null where it is not
/// wanted. Rows of tokens that it is not called for, those without a label, stay as they are.
///
/// Statistics: the Reducer of the loss, a pair that has a largest_entries_reducer<K> and a log-sum-exp; for example
/// paired_reducer<loss_statistics, largest_entries_reducer<K>>. On sm_90a the fast program takes states of up to 400
/// bytes, on other GPUs up to 112: 13 entries beside a log-sum-exp.
///
/// An entry that does not exist, where the vocabulary has fewer than K or others are NaNs, is -1 with log-probability
/// minus infinity. A NaN or a plus infinity among the logits makes the log-probabilities of the row NaN, or those of
/// finite logits minus infinity; NaNs are no entries. A masked entry, of minus infinity, comes after all others, with
/// log-probability minus infinity, or NaN where all are masked.
template <int K, LogitReducer Statistics = paired_reducer<lse_reducer<float>, largest_entries_reducer<K>>>
struct write_top_entries {
  static_assert(has_reducer<largest_entries_reducer<K>, Statistics> && detail::has_log_sum_exp<Statistics>,
                "tessera: write_top_entries<K> reads a Reducer with a largest_entries_reducer<K> and a log-sum-exp");
  /// The Reducer whose states are read: the Statistics of the loss.
  using reducer = Statistics;

  matrix_view<std::int32_t> entries;          ///< tokens x K, or null
  matrix_view<float> log_probabilities = {};  ///< tokens x K, in nats, or null

  /// Names the views that it writes, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("entries", entries);
    use("log-probabilities", log_probabilities);
  }
  /// Throws shape_error unless the matrices have room for so many tokens; see check_finish().
  void check_tokens(char const* function, std::int64_t tokens) const {
    check_matrix(function, "entries", entries, tokens);
    check_matrix(function, "log-probabilities", log_probabilities, tokens);
  }
  /// Writes the row of a token.
  TESSERA_FN void operator()(std::int64_t, std::int64_t token, typename reducer::state_type const& state) const {
    reducer const whole{};
    auto const& top = state_of<largest_entries_reducer<K>>(whole, state);
    auto const& sum = sum_of(state);
    float const above = log(sum.scaled);  // log-sum-exp - largest: without cancellation, as in the loss
    for (int k = 0; k < K; ++k) {
      indexed_value<float> const entry = top.of[k];
      if (entries.data != nullptr) {
        entries(token, k) = entry.index;
      }
      if (log_probabilities.data != nullptr) {
        log_probabilities(token, k) = entry.index < 0 ? -infinity : (entry.value - sum.largest) - above;
      }
    }
  }

 private:
  TESSERA_FN static auto const& sum_of(typename reducer::state_type const& state) {
    if constexpr (has_reducer<lse_reducer<float>, reducer>) {
      return state_of<lse_reducer<float>>(reducer{}, state);
    } else {
      return state_of<entropy_reducer<float>>(reducer{}, state);
    }
  }
  template <class T>
  static void check_matrix(char const* function, char const* what, matrix_view<T> const& given, std::int64_t tokens) {
    check_memory(function, what, given);
    check<shape_error>(given.data == nullptr || (given.extent(0) == tokens && given.extent(1) == K), function, ": the ",
                       what, " of the top are ", given.extent(0), " x ", given.extent(1), " but must be ", tokens,
                       " x ", K);
    check_apart(function, what, given);
  }
};

static_assert(RowFinish<write_top_entries<8>, write_top_entries<8>::reducer::state_type>);

}  // namespace v0
}  // namespace tessera
