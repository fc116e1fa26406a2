// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Programs of a loss whose classifier is spread over ranks: labels as a rank's own loss takes them, what ranks tell
/// each other of the rows of their tokens, and upstream gradients for their own parts.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/loss/finish_loss.hpp>
#include <tessera/program/loss/gradient_products.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/reduce/arg_max.hpp>
#include <tessera/reduce/largest_entries.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/reduce/paired.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// A rank's rows of the classifier.
struct rank_entries {
  std::int64_t first;  ///< the entry of the vocabulary that is its first row
  std::int64_t count;  ///< how many rows it has

  /// Whether an entry of the vocabulary is one of them.
  [[nodiscard]] TESSERA_FN constexpr bool contain(std::int64_t entry) const {
    return entry >= first && entry < first + count;
  }
};

/// Makes the labels of a rank's own loss. A label that another rank has becomes entry 0, which then has no gradient of
/// its own; a token without a label keeps none.
struct localize_labels {
  static constexpr int lanes = 256;
  static constexpr std::int32_t none = -100;  ///< the label of tokens without one
  struct scratch_type {};

  loss_token_list tokens;
  rank_entries entries;
  array_view<std::int32_t> labels;  ///< the result, one for each token

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(labels.size(), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    each_index<lanes>(group, which, labels.size(), [&, this](std::int64_t token) {
      std::int64_t const row = tokens.row_of[token];
      labels[token] = row < 0 ? none : local(tokens.labels[row]);
    });
  }

 private:
  TESSERA_FN constexpr std::int32_t local(std::int32_t label) const {
    return entries.contain(label) ? static_cast<std::int32_t>(label - entries.first) : 0;
  }
};

/// What a rank tells the others of a row. Target: float or double.
template <class State, class Target = float>
struct rank_row {
  State state;    ///< of the Reducer, over the rank's own entries
  Target target;  ///< the rank's part of a sum over ranks: the label's logit, and 0 where another rank has the label
};

/// What all ranks must be called with alike, and how many entries each has. It travels behind a rank's rows, in words
/// of 32 bits, since rows may begin at any multiple of 4 bytes.
struct rank_call {
  /// What ranks differ in; also the position that is reported.
  enum part {
    vocabulary,  ///< entries of all ranks
    channels,    ///< channels of a hidden state
    reduction,   ///< the loss_reduction, as a number
    options,     ///< hash of all other options that the loss depends on
    entries,     ///< the rank's own entries, which are the vocabulary in all
    first,       ///< the first of them; parts of ranks must not overlap
    parts,       ///< how many there are
  };
  /// Rows that have room for it, of 12 bytes or more. Lists of a multiple of 16 bytes stay such lists.
  static constexpr int rows = 4;

  static constexpr std::int64_t words = 2 * parts;  ///< of 32 bits

  std::uint64_t values[parts];

  /// The word of 32 bits at an index; 0 behind the last.
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t word(std::int64_t index) const {
    return index < words ? static_cast<std::uint32_t>(values[index / 2] >> (32 * (index % 2))) : 0U;
  }
};

/// Compares what ranks were called with.
struct rank_calls {
  matrix_view<std::uint32_t const> words;  ///< ranks x words of a rank_call
  array_view<float> poison;                ///< of elements, if any, the first becomes NaN where ranks differ
  status_word* status;                     ///< where differences are reported

  /// Reports the first rank that differs from rank 0, and parts of the vocabulary that are not all of it. All lanes of
  /// the group must reach it.
  template <Group G>
  TESSERA_FN void compare(G const& group) const {
    per_lane<std::uint64_t, G> differences;
    per_lane<std::uint64_t, G> entries;
    per_lane<std::uint64_t, G> moments;  // twice the sum of a rank's entries, and how many they are: modulo 2^64
    for (int lane : group) {
      differences[lane] = entries[lane] = moments[lane] = 0;
      for (std::int64_t rank = lane; rank < words.extent(0); rank += G::size) {
        for (int part = 0; part < rank_call::entries; ++part) {
          if (value(rank, part) != value(0, part)) {
            report(group, part, rank, value(rank, part));
            ++differences[lane];
          }
        }
        std::uint64_t const own = value(rank, rank_call::entries);
        entries[lane] += own;
        moments[lane] += own * (2 * value(rank, rank_call::first) + own);
      }
    }
    std::uint64_t const found = sum(group, differences);
    std::uint64_t const all = sum(group, entries);
    std::uint64_t const moment = sum(group, moments);
    for (int lane : group) {
      std::uint64_t const whole = value(0, rank_call::vocabulary);
      bool const is_whole = all == whole && moment == whole * whole;
      if (lane == 0 && found == 0 && !is_whole) {
        report(group, all != whole ? rank_call::entries : rank_call::first, static_cast<std::int64_t>(all), whole);
      }
      if (lane == 0 && poison.size() > 0 && (found > 0 || !is_whole)) {
        poison[0] = not_a_number;
      }
    }
  }

 private:
  template <Group G>
  TESSERA_FN void report(G const& group, int part, std::int64_t which, std::uint64_t found) const {
    group.report(status, status_code::other_rank, part, {which, static_cast<std::int64_t>(found)});
  }
  TESSERA_FN constexpr std::uint64_t value(std::int64_t rank, int part) const {
    return words(rank, 2 * part) | static_cast<std::uint64_t>(words(rank, 2 * part + 1)) << 32;
  }
};

/// Writes what a rank is called with, where no rows are sent that it could travel behind.
struct write_rank_call {
  static constexpr int lanes = 32;
  struct scratch_type {};

  rank_call call;
  array_view<std::uint32_t> words;  ///< the result

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    for (int lane : group) {
      for (std::int64_t word = lane; word < words.size(); word += lanes) {
        words[word] = call.word(word);
      }
    }
  }
};

/// Compares what ranks were called with, where nothing else is taken apart.
struct compare_rank_calls {
  static constexpr int lanes = 32;
  struct scratch_type {};

  rank_calls calls;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    calls.compare(group);
  }
};

/// The RowFinish that keeps states in the order of rows.
template <class State, class Target = float>
struct keep_rank_states {
  array_view<rank_row<State, Target>> rows;  ///< one for each row

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("rows of ranks", rows);
  }
  /// Writes the state of a row.
  TESSERA_FN void operator()(std::int64_t row, std::int64_t, State const& state) const { rows[row].state = state; }
};

/// How many entries a Reducer keeps, if it is a largest_entries_reducer; else 0.
template <class R>
inline constexpr int kept_entries_of = 0;
template <int K>
inline constexpr int kept_entries_of<largest_entries_reducer<K>> = K;

/// Makes entries of the whole vocabulary of those that a state has counted from its rank's first one.
template <class R>
TESSERA_FN void count_from(std::int64_t first, typename R::state_type& state) {
  if constexpr (std::is_same_v<R, arg_max_reducer<float>>) {
    state.index += state.index < 0 ? 0 : static_cast<std::int32_t>(first);
  } else if constexpr (kept_entries_of<R> > 0) {
    for (auto& entry : state.of) {
      entry.index += entry.index < 0 ? 0 : static_cast<std::int32_t>(first);
    }
  } else if constexpr (requires { typename R::first_type; }) {
    count_from<typename R::first_type>(first, state.first);
    count_from<typename R::second_type>(first, state.second);
  }
}

/// What a rank tells of the logit of a row's label.
struct rank_label_logit {
  rank_entries entries;
  array_view<std::int32_t const> labels;    ///< of rows
  array_view<float const> log_probability;  ///< of each token's label, among the rank's own entries

  /// The logit, or 0 where another rank has the label.
  TESSERA_FN float operator()(std::int64_t row, std::int64_t token, softmax_reading const& softmax) const {
    return entries.contain(labels[row]) ? softmax.largest + (log_probability[token] + softmax.above) : 0.0F;
  }
};

/// Adds to rows what their states do not say. Target: rank_label_logit, or rank_entry_logits.
template <LogitReducer R, class Target>
struct complete_rank_rows {
  static constexpr int lanes = 256;
  struct scratch_type {};
  using target_type = decltype(Target{}(0, 0, {}));
  using row_type = rank_row<typename R::state_type, target_type>;

  loss_token_list tokens;
  rank_entries entries;
  Target target;
  array_view<row_type> rows;  ///< one for each token; those without a token, or of a rank without entries, are neutral
  rank_call call;             ///< what the rank is called with
  array_view<std::uint32_t> words;  ///< where it goes, behind the rows

  TESSERA_FN constexpr std::int64_t groups() const {
    return divide_up(max(rows.size(), std::int64_t{1}), std::int64_t{lanes});
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const row = which * lanes + lane;
      if (row < tokens.count[0] && entries.count > 0) {
        auto& own = rows[row];
        own.target = target(row, tokens.order[row], read_softmax(R{}, own.state));
        count_from<R>(entries.first, own.state);
      } else if (row < rows.size()) {
        rows[row] = {R{}.identity(), target_type{0}};  // so that no bits of memory that nobody wrote are sent
      }
      for (std::int64_t word = lane; which == 0 && word < words.size(); word += lanes) {
        words[word] = call.word(word);
      }
    }
  }
};

/// Takes apart what all ranks have told.
template <class State, class Target = float>
struct split_rank_rows {
  static constexpr int lanes = 256;
  struct scratch_type {};

  matrix_view<rank_row<State, Target> const> rows;  ///< ranks x rows
  matrix_view<State> states;                        ///< the result: ranks x rows
  array_view<Target> targets;                       ///< the result: sums of what ranks have told, in their order
  rank_calls calls;                                 ///< what ranks were called with

  TESSERA_FN constexpr std::int64_t groups() const {
    return divide_up(max(targets.size(), std::int64_t{1}), std::int64_t{lanes});
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    if (which == 0) {
      calls.compare(group);
    }
    each_index<lanes>(group, which, targets.size(), [&, this](std::int64_t row) {
      Target target{0};
      for (std::int64_t rank = 0; rank < rows.extent(0); ++rank) {
        states(rank, row) = rows(rank, row).state;
        target += rows(rank, row).target;
      }
      targets[row] = target;
    });
  }
};

/// Makes the upstream gradients of a rank's own losses. With S the softmax over all ranks' entries, which the rank's
/// own backward pass has from the log-sum-exps of all, and g, h, k of the whole loss:
///
///     G = g (S - q) + h S - k ...      for a rank with the label
///     G = (g + h) S - k ...            for the others: of their own losses, nothing
///
/// Where the entries of targets are differentiated one by one (rank_target_rows), the first holds for all ranks, and
/// with smoothing g' = kept g of each rank's own loss (rank_smoothing), while (1 - kept) g is a factor of S.
struct prepare_rank_gradients {
  static constexpr int lanes = 256;
  struct scratch_type {};

  loss_token_list tokens;
  rank_entries entries;
  loss_token_weights weights;
  array_view<float const> row_lse;  ///< log-sum-exps of rows, of all ranks' entries
  loss_upstream upstream;
  float z_factor;
  bool is_reduced;
  array_view<float const> mean_scale;  ///< one element: finish_loss::scale
  array_view<float const> verdict;     ///< one element: 1, or NaN after another forward pass
  bool has_targets;                    ///< whether there are rank_target_rows
  float kept;                          ///< rank_smoothing::kept; 1 without targets
  array_view<float> by_loss;           ///< the result, one for each token
  array_view<float> by_log_sum_exp;    ///< the result, one for each token
  array_view<float> by_target;         ///< the result: g of each token; null where it is not wanted
  std::uint64_t* own_stamp;            ///< of the rank's own forward pass, which is forgotten if the verdict is NaN

  TESSERA_FN constexpr std::int64_t groups() const {
    return max(divide_up(by_loss.size(), std::int64_t{lanes}), std::int64_t{1});
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    float const common =
        verdict[0] * (!is_reduced ? 1.0F : mean_scale[0] * (upstream.loss.data != nullptr ? upstream.loss[0] : 1.0F));
    for (int lane : group) {
      std::int64_t const row = which * lanes + lane;
      if (row == 0 && is_nan(verdict[0])) {
        own_stamp[0] = 0;
      }
      if (row < tokens.count[0]) {
        std::int64_t const token = tokens.order[row];
        float const share = has_targets ? kept : entries.contain(tokens.labels[row]) ? 1.0F : 0.0F;
        float const own = !is_reduced && upstream.loss.data != nullptr ? upstream.loss[token] : 1.0F;
        float const g = common * weights.of(token, tokens.labels[row]) * own;
        float const by_lse = upstream.log_sum_exp.data != nullptr ? upstream.log_sum_exp[token] : 0.0F;
        by_loss[token] = share == 0.0F ? 0.0F : share * g;
        by_log_sum_exp[token] =
            (share == 1.0F ? 0.0F : (1.0F - share) * g) + by_lse + g * 2.0F * z_factor * row_lse[row];
        write_if_asked(by_target, token, g);
      }
    }
  }
};

/// Copies the values of rows.
struct copy_rows {
  static constexpr int lanes = 256;
  struct scratch_type {};

  array_view<std::int64_t const> count;  ///< one element: how many rows there are
  array_view<float const> log_sum_exp;
  array_view<float const> entropy;
  array_view<float> row_lse;
  array_view<float> row_entropy;

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(row_lse.size(), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    each_index<lanes>(group, which, count[0], [&, this](std::int64_t row) {
      row_lse[row] = log_sum_exp[row];
      row_entropy[row] = entropy[row];
    });
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
