// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `select_loss_tokens`: finds the tokens that have a label and lists them, in their order, on the device. The programs
/// after it work on the list, so that ignored tokens cost nothing and their number need not be read by the host.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/status.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

/// The rule by which tokens get their labels.
struct label_rule {
  std::int64_t ignore_index;  ///< a token with this label has none
  std::int64_t shift;         ///< token t of a sequence has label t + shift
  std::int64_t sequence;      ///< tokens of a sequence, at least 1
  std::int64_t vocabulary;    ///< labels are below it
};

/// The list of tokens with a label: `count[0]` rows. `order` and `labels` have room for all tokens; their first
/// `count[0]` elements count, and `order` is -1 after those.
struct loss_token_list {
  array_view<std::int64_t> order;   ///< the token of each row
  array_view<std::int64_t> row_of;  ///< the row of each token; -1: it has no label
  array_view<std::int32_t> labels;  ///< the label of each row
  array_view<std::int64_t> count;   ///< one element: the number of rows
};

/// The weights of losses of tokens: that of the token times that of its label's class.
struct loss_token_weights {
  array_view<float const> tokens = {};   ///< a value for each token, or null for ones
  array_view<float const> classes = {};  ///< a value for each entry of the vocabulary, or null for ones

  /// The weight of a token with this label, which is an entry of the vocabulary.
  [[nodiscard]] TESSERA_FN constexpr float of(std::int64_t token, std::int32_t label) const {
    float const own = tokens.data != nullptr ? tokens[token] : 1.0F;
    return classes.data != nullptr ? own * classes[label] : own;
  }
};

/// The outputs that have a value for each token; null where they are not wanted.
struct loss_token_outputs {
  array_view<float> loss;               ///< losses, with weight, smoothing and z-loss
  array_view<float> log_sum_exp;        ///< log-sum-exps of the logits
  array_view<float> log_probability;    ///< log-probabilities of the labels
  array_view<float> entropy;            ///< entropies of the softmaxes, in nats
  array_view<std::int32_t> prediction;  ///< likeliest entries
};

namespace detail {

inline constexpr float not_a_number = bit_cast<float>(0x7fffffffU);

template <class T>
TESSERA_FN constexpr void write_if_asked(array_view<T> list, std::int64_t index, T value) {
  if (list.data != nullptr) {
    list[index] = value;
  }
}

/// Writes the outputs of a token without a label: `value`, which is 0, or NaN if its label does not exist; prediction
/// -1.
TESSERA_FN constexpr void write_all(loss_token_outputs const& outputs, std::int64_t token, float value) {
  write_if_asked(outputs.loss, token, value);
  write_if_asked(outputs.log_sum_exp, token, value);
  write_if_asked(outputs.log_probability, token, value);
  write_if_asked(outputs.entropy, token, value);
  write_if_asked(outputs.prediction, token, std::int32_t{-1});
}

}  // namespace detail

/// Lists the tokens with a label. Run with one group. A label outside of the vocabulary is reported with its position
/// and poisons the loss: its token is not in the list, the token's outputs are NaN, and `poison[0]`, else 0, is NaN.
template <class Label>
struct select_loss_tokens {
  static_assert(std::is_same_v<Label, std::int32_t> || std::is_same_v<Label, std::int64_t>,
                "tessera: labels are std::int32_t or std::int64_t");
  static constexpr int lanes = 1024;  // one group takes all tokens
  struct scratch_type {
    std::uint32_t bad;  ///< how many labels are outside of the vocabulary
  };

  array_view<Label const> given;  ///< the given labels, one for each token
  label_rule rule;                ///< which labels count
  loss_token_list tokens;
  loss_token_outputs outputs;
  array_view<float> poison;  ///< one element
  status_word* status;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type& scratch) const {
    for (int lane : group) {
      if (is_first(lane)) {
        scratch.bad = 0;
      }
    }
    group.sync();
    std::int64_t count = 0;
    for (std::int64_t first = 0; first < given.size(); first += lanes) {
      count += list_some(group, first, count, scratch);
    }
    for (int lane : group) {
      for (std::int64_t row = count + lane; row < given.size(); row += lanes) {
        tokens.order[row] = -1;
      }
    }
    group.sync();
    for (int lane : group) {
      if (is_first(lane)) {
        tokens.count[0] = count;
        poison[0] = scratch.bad != 0 ? detail::not_a_number : 0.0F;
      }
    }
  }

 private:
  enum class kind { none, label, bad };
  struct verdict {
    kind what;
    std::int64_t label;
  };

  TESSERA_FN constexpr verdict judge(std::int64_t token) const {
    if (token >= given.size() || token % rule.sequence >= rule.sequence - rule.shift ||
        token + rule.shift >= given.size()) {
      return {kind::none, 0};
    }
    auto const label = static_cast<std::int64_t>(given[token + rule.shift]);
    if (label == rule.ignore_index) {
      return {kind::none, 0};
    }
    return {label >= 0 && label < rule.vocabulary ? kind::label : kind::bad, label};
  }

  template <Group G>
  TESSERA_FN std::int64_t list_some(G const& group, std::int64_t first, std::int64_t before,
                                    scratch_type& scratch) const {
    per_lane<std::int32_t, G> rank;
    for (int lane : group) {
      verdict const judged = judge(first + lane);
      kind const what = judged.what;
      rank[lane] = what == kind::label ? 1 : 0;
      if (what == kind::bad) {
        group.atomic_add(scratch.bad, 1U);
        group.report(status, status_code::bad_label, first + lane + rule.shift, {judged.label, rule.vocabulary});
      }
      if (what != kind::label && first + lane < given.size()) {
        detail::write_all(outputs, first + lane, what == kind::bad ? detail::not_a_number : 0.0F);
      }
    }
    std::int32_t const found = exclusive_sum(group, rank);
    for (int lane : group) {
      verdict const judged = judge(first + lane);
      if (first + lane < given.size()) {
        tokens.row_of[first + lane] = judged.what == kind::label ? before + rank[lane] : -1;
      }
      if (judged.what == kind::label) {
        tokens.order[before + rank[lane]] = first + lane;
        tokens.labels[before + rank[lane]] = static_cast<std::int32_t>(judged.label);
      }
    }
    return found;
  }
};

}  // namespace v0
}  // namespace tessera
