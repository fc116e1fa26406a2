// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Targets of a loss whose classifier is spread over ranks: which of them are a rank's own entries, what a rank tells
/// the others of their logits, and losses of what all ranks have told. With smoothing labels are such targets, too.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/status.hpp>
#include <tessera/program/loss/detail/rank_rows.hpp>
#include <tessera/program/loss/detail/target_losses.hpp>
#include <tessera/program/loss/detail/target_rows.hpp>
#include <tessera/program/loss/finish_loss.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// How a rank's own loss smooths labels, so that its gradients are those of the whole vocabulary. With s the whole
/// loss's smoothing, V entries of which the rank has v, and g a token's factor, a gradient by a logit has the terms
///
///     g (S - s / V) - g (1 - s) if the entry is the label
///
/// The rank's own loss makes g' (S - s' / v) - g' (1 - s'), so that g' = kept g, s' = own:
struct rank_smoothing {
  float kept;  ///< 1 - s + s v / V
  float own;   ///< s v / V / kept

  /// What a rank with `entries` of `vocabulary` entries has.
  static rank_smoothing of(float smoothing, std::int64_t entries, std::int64_t vocabulary) {
    double const part = static_cast<double>(smoothing) * static_cast<double>(entries) / static_cast<double>(vocabulary);
    double const kept = 1.0 - static_cast<double>(smoothing) + part;
    return {static_cast<float>(kept), kept > 0.0 ? static_cast<float>(part / kept) : 0.0F};
  }
};

/// Targets among a rank's own entries, as target_rows are among all.
struct rank_target_rows {
  static constexpr std::int64_t none = -1;  ///< no entry is given

  /// tokens x (K + 1): the rank's own entries, from its first one; negative: none. The last one is the label of the
  /// rank's own loss, from whose gradient that is subtracted wrongly where no other rank's label is meant.
  matrix_view<std::int32_t const> entries;
  matrix_view<float const> weights;  ///< tokens x K, or null for ones
  float factor;                      ///< what weights are multiplied by: rank_smoothing::kept
  std::int64_t vocabulary;           ///< the rank's own entries

  [[nodiscard]] TESSERA_FN constexpr std::int64_t count() const { return entries.extent(1); }
  [[nodiscard]] TESSERA_FN constexpr std::int64_t weighted(std::int64_t token, std::int64_t place) const {
    return entries(token, place);
  }
  [[nodiscard]] TESSERA_FN constexpr float weight_of(std::int64_t token, std::int64_t entry) const {
    float sum = 0.0F;
    for (std::int64_t place = 0; place + 1 < count(); ++place) {
      sum += entries(token, place) == entry ? weight(token, place) : 0.0F;
    }
    return factor * sum;
  }
  /// The sum is not known here: other ranks have the other entries, and signs of their own.
  [[nodiscard]] TESSERA_FN constexpr target_weights weights_of(std::int64_t token) const {
    float magnitude = 0.0F;
    for (std::int64_t place = 0; place + 1 < count(); ++place) {
      magnitude += entries(token, place) < 0 ? 0.0F : absolute(weight(token, place));
    }
    return {0.0F, factor * magnitude};
  }
  /// The weight in a place with an entry, as it was given.
  [[nodiscard]] TESSERA_FN constexpr float weight(std::int64_t token, std::int64_t place) const {
    return weights.data != nullptr ? weights(token, place) : 1.0F;
  }
};

/// Finds the entries of targets that are a rank's own. Entries that have no weight are none.
template <class Entry>
struct localize_targets {
  static constexpr int lanes = 256;
  struct scratch_type {};

  target_rows<Entry> targets;
  rank_entries own;
  array_view<std::int32_t const> own_labels;  ///< of localize_labels
  matrix_view<std::int32_t> entries;          ///< the result: rank_target_rows::entries

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(entries.size(), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    each_index<lanes>(group, which, entries.size(), [&, this](std::int64_t i) {
      std::int64_t const token = i / entries.extent(1);
      std::int64_t const place = i % entries.extent(1);
      std::int64_t const label = own_labels[token];
      std::int64_t const given = place == targets.count() ? label : local(token, place);
      entries(token, place) = static_cast<std::int32_t>(label < 0 ? rank_target_rows::none : given);
    });
  }

 private:
  TESSERA_FN constexpr std::int64_t local(std::int64_t token, std::int64_t place) const {
    std::int64_t const entry = targets.weighted(token, place);
    return own.contain(entry) ? entry - own.first : rank_target_rows::none;
  }
};

/// The same of labels, which are targets of weight 1.
struct localize_label_targets {
  static constexpr int lanes = 256;
  static constexpr int places = 2;  ///< the label, and that of the rank's own loss
  struct scratch_type {};

  loss_token_list tokens;
  rank_entries own;
  array_view<std::int32_t const> own_labels;  ///< of localize_labels
  matrix_view<std::int32_t> entries;          ///< the result: rank_target_rows::entries

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(own_labels.size(), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    each_index<lanes>(group, which, own_labels.size(), [&, this](std::int64_t token) {
      std::int64_t const row = tokens.row_of[token];
      bool const is_own = row >= 0 && own.contain(tokens.labels[row]);
      entries(token, 0) = is_own ? own_labels[token] : static_cast<std::int32_t>(rank_target_rows::none);
      entries(token, 1) = row >= 0 ? own_labels[token] : static_cast<std::int32_t>(rank_target_rows::none);
    });
  }
};

/// What a rank tells of the logits of a token's entries: the sum of those of its own, times their weights. See
/// rank_label_logit.
template <LogitMap Map>
struct rank_entry_logits {
  rank_target_rows targets;
  target_logits<Map> logits;

  TESSERA_FN double operator()(std::int64_t, std::int64_t token, softmax_reading const&) const {
    double sum = 0.0;
    for (std::int64_t place = 0; place + 1 < targets.count(); ++place) {
      std::int64_t const entry = targets.weighted(token, place);
      if (entry >= 0) {
        sum +=
            static_cast<double>(targets.weight(token, place)) * static_cast<double>(logits.logit(token, place, entry));
      }
    }
    return sum;
  }
};

/// The RowFinish that makes a token's loss of what all ranks have told: see keep_target_losses.
template <LogitReducer R, class Entry>
struct keep_rank_target_losses : kept_target_losses<Entry> {
  using kept_target_losses<Entry>::targets;
  array_view<double const> logit_sums;  ///< of rank_entry_logits, over all ranks, one for each row

  /// Takes the state of a token.
  TESSERA_FN void operator()(std::int64_t row, std::int64_t token, typename R::state_type const& state) const {
    softmax_reading const softmax = read_softmax(R{}, state);
    target_sums sums{0.0, 0.0, logit_sums[row]};
    for (std::int64_t place = 0; place < targets.count(); ++place) {
      sums.mass += targets.weighted(token, place) >= 0 ? static_cast<double>(targets.weights(token, place)) : 0.0;
    }
    double const lse = static_cast<double>(softmax.largest) + static_cast<double>(softmax.above);
    // Where no weight is left nothing is wanted, whatever the log-sum-exp is.
    sums.surprise = (sums.mass == 0.0 ? 0.0 : sums.mass * lse) - sums.logits;
    this->keep(R{}, token, state, sums);
  }
};

/// Finds the chosen entries that are a rank's own; the others become none.
template <class Entry>
struct localize_chosen {
  static constexpr int lanes = 256;
  struct scratch_type {};

  matrix_view<Entry const> entries;  ///< tokens x K
  rank_entries own;
  matrix_view<std::int32_t> local;  ///< the result: entries from the rank's first one; negative: none

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(local.size(), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    each_index<lanes>(group, which, local.size(), [&, this](std::int64_t i) {
      std::int64_t const token = i / local.extent(1);
      std::int64_t const place = i % local.extent(1);
      auto const entry = static_cast<std::int64_t>(entries(token, place));
      local(token, place) = static_cast<std::int32_t>(own.contain(entry) ? entry - own.first : -1);
    });
  }
};

/// Makes log-probabilities of the logits of all ranks' chosen entries, and reports entries beyond the vocabulary.
template <class Entry>
struct finish_chosen {
  static constexpr int lanes = 256;
  struct scratch_type {};

  matrix_view<Entry const> entries;      ///< tokens x K; negative: none
  matrix_view<float const> logits;       ///< tokens x K
  array_view<float const> log_sum_exp;   ///< one for each token
  std::int64_t vocabulary;               ///< entries of all ranks
  matrix_view<float> log_probabilities;  ///< the result, tokens x K
  status_word* status;

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(logits.size(), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    each_index<lanes>(group, which, logits.size(), [&, this](std::int64_t i) {
      std::int64_t const token = i / logits.extent(1);
      std::int64_t const place = i % logits.extent(1);
      auto const entry = static_cast<std::int64_t>(entries(token, place));
      float result = entry < 0 ? 0.0F : logits(token, place) - log_sum_exp[token];
      if (entry >= vocabulary) {
        group.report(status, status_code::bad_entry, i, {entry, vocabulary});
        result = not_a_number;
      }
      log_probabilities(token, place) = result;
    });
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
