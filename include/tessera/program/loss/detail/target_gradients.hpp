// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Gradients of a loss whose targets are entries with weights. With S the softmax, W_i the sum of a token's weights and
/// u_i its upstream gradient, the gradient by a logit is u_i (W_i S_ij - w_ij): that of a loss of labels with the
/// weight W_i, but at the entries of targets. There `write_target_gradients` replaces, in a part that a fast program
/// has made, one element for each entry, from the entry's own logit in fp32. The portable program asks
/// `wanted_entries`.
#pragma once

#include <cstdint>

#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/group.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/mix_bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/loss/block_lists.hpp>
#include <tessera/program/loss/detail/target_losses.hpp>
#include <tessera/program/loss/detail/target_rows.hpp>
#include <tessera/program/loss/entry_order.hpp>
#include <tessera/program/loss/gradient_products.hpp>
#include <tessera/program/loss/logit_gradient.hpp>
#include <tessera/program/loss/logits.hpp>
#include <tessera/program/loss/stamp.hpp>
#include <tessera/program/loss/token_factors.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Makes the upstream gradients of tokens: those of their losses, and these times the weights of tokens.
struct prepare_target_gradients {
  static constexpr int lanes = 256;
  struct scratch_type {};

  array_view<float const> weights;   ///< weights of tokens, or null for ones
  array_view<float const> upstream;  ///< of the reduced loss, or of each token's; null: ones
  bool is_reduced;                   ///< whether the losses of tokens are reduced to one
  array_view<float const> scale;     ///< one element: finish_target_losses::scale
  array_view<float> by_loss;         ///< the result, one for each token
  array_view<float> by_target;       ///< the result, one for each token: by_loss * the token's weight

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(by_loss.size(), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    each_index<lanes>(group, which, by_loss.size(), [&, this](std::int64_t token) {
      float const given = upstream.data != nullptr ? upstream[is_reduced ? 0 : token] : 1.0F;
      float const own = is_reduced ? scale[0] * given : given;
      by_loss[token] = own;
      by_target[token] = own * (weights.data != nullptr ? weights[token] : 1.0F);
    });
  }
};

/// Writes a hash of samples of targets, or compares it with one that was written: where they differ, it changes the
/// stamp of the loss of labels, which then refuses its inputs (check_loss_stamp). Run with one group.
template <class Entry>
struct stamp_targets {
  static constexpr int lanes = loss_input_samples<float, std::int32_t>::lanes;
  struct scratch_type {};

  target_rows<Entry> targets;
  array_view<float const> weights;      ///< weights of tokens, or null
  std::uint64_t options;                ///< a hash of what the loss of labels does not know
  array_view<std::uint64_t> own;        ///< one element: the hash
  array_view<std::uint64_t> of_labels;  ///< loss_stamp::size words; null: the hash is written

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    loss_input_samples<Entry, std::int32_t> const of_entries{targets.entries, {}, {}, {}, {}};
    loss_input_samples<float, std::int32_t> const of_weights{targets.weights, {}, {}, {}, weights};
    std::uint64_t const entries = of_entries.number(group);
    std::uint64_t const number = mix_bits(mix_bits(options, entries), of_weights.number(group));
    for (int lane : group) {
      if (lane == 0 && of_labels.data == nullptr) {
        own[0] = number;
      } else if (lane == 0 && own[0] != number) {
        of_labels[loss_stamp::inputs] += 1;
      }
    }
  }
};

/// Raises the bounds of prepare_loss_gradients, which know of a token's weights no more than their sum, where these
/// have both signs. Run with a group for each of its groups.
template <class Rows>
struct raise_target_bounds {
  static constexpr int lanes = prepare_loss_gradients::lanes;
  struct scratch_type {};

  Rows targets;
  array_view<float const> by_target;  ///< of prepare_target_gradients
  loss_token_list tokens;
  array_view<float> largest;  ///< the bounds, one for each group

  TESSERA_FN constexpr std::int64_t groups() const { return largest.size(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    per_lane<float, G> beyond;
    for (int lane : group) {
      std::int64_t const row = which * lanes + lane;
      beyond[lane] = row < tokens.count[0] ? beyond_sum(tokens.order[row]) : 0.0F;
    }
    float const most = maximum(group, beyond);
    for (int lane : group) {
      if (lane == 0) {
        largest[which] += most;
      }
    }
  }

 private:
  TESSERA_FN float beyond_sum(std::int64_t token) const {
    target_weights const weights = targets.weights_of(token);
    float const bound = absolute(by_target[token]) * weights.magnitude;
    return weights.magnitude > absolute(weights.sum) && is_finite(bound) ? bound : 0.0F;
  }
};

/// Marks the entries of targets, which matter although their softmax may be small. Run as mark_labels.
template <class Rows>
struct mark_target_entries {
  static constexpr int lanes = mark_labels::lanes;
  struct scratch_type {
    std::int64_t entries[lanes];  ///< an entry of each of the block's tokens, or none
  };

  loss_mark_reader marks;
  Rows targets;
  array_view<std::int64_t const> row_of;  ///< the row of each token in the list of those with a label

  TESSERA_FN constexpr std::int64_t groups() const { return marks.live.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    if (marks.is_marked[0] == 0) {
      return;
    }
    for (std::int64_t place = 0; place < targets.count(); ++place) {
      for (int lane : group) {
        std::int64_t const token = which * lanes + lane;
        bool const has_row = token < row_of.size() && row_of[token] >= 0;
        scratch.entries[lane] = has_row ? targets.weighted(token, place) : Rows::none;
      }
      group.sync();
      for (int lane : group) {
        std::int64_t const entry = scratch.entries[lane];
        bool is_new = entry >= 0 && !marks.is_live(which, entry);
        for (int other = 0; is_new && other < lane; ++other) {
          is_new = scratch.entries[other] != entry;
        }
        if (is_new) {  // no other lane adds this bit
          group.atomic_add(marks.live(which, entry / 32), std::uint32_t{1} << entry % 32);
        }
      }
      group.sync();
    }
  }
};

/// Writes the gradients by the logits of targets over those that a fast program has made for a part, and keeps their
/// blocks. Run with a group for each token. Where a token has an entry several times, its first place writes.
template <class T, class Rows, LogitMap Map>
struct write_target_gradients {
  static constexpr int lanes = 32;
  static constexpr int groups_per_block = 4;
  struct scratch_type {};

  Rows targets;
  target_logits<Map> logits;
  logit_scaling<T> scaling;
  array_view<float const> by_target;         ///< of prepare_target_gradients
  std::int64_t first_token;                  ///< the token that is the part's first one
  float const* late_scale;                   ///< the number that the factors of rows were divided by
  array_view<std::int64_t const> row_of;     ///< of the part's tokens
  array_view<loss_row_gradient const> rows;  ///< the factors of rows
  float smoothing;
  loss_part_range range;
  std::int32_t const* slot_of;                    ///< the slot of each entry in the backward pass; null: its number
  loss_token_factors const* of_kept;              ///< for kept softmaxes: by_kept, which divides gradients; else null
  matrix_view<T> gradient;                        ///< tokens x entries of the part
  matrix_view<std::uint8_t> kept_for_hidden;      ///< blocks of 128 tokens x blocks of 128 entries
  matrix_view<std::uint8_t> kept_for_classifier;  ///< blocks of 128 tokens x blocks of 128 entries

  TESSERA_FN constexpr std::int64_t groups() const { return gradient.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const row = row_of[which];
    std::int64_t const token = first_token + which;
    if (row < 0) {
      return;
    }
    loss_row_gradient const factors = rows[row];
    std::int64_t const width = min(range.width(), gradient.extent(1));
    for (int lane : group) {
      for (std::int64_t place = lane; place < targets.count(); place += lanes) {
        std::int64_t const entry = targets.weighted(token, place);
        std::int64_t const at = entry < 0 ? -1 : (slot_of != nullptr ? slot_of[entry] : entry) - range.first;
        if (at >= 0 && at < width && is_first_place(token, place, entry)) {
          float const value = gradient_of(token, place, entry, factors);
          gradient(which, at) = store<T>(of_kept != nullptr ? value / of_kept[which].by_kept : value);
          kept_for_hidden(which / 128, at / 128) = 1;
          kept_for_classifier(which / 128, at / 128) = 1;
        }
      }
    }
  }

 private:
  TESSERA_FN bool is_first_place(std::int64_t token, std::int64_t place, std::int64_t entry) const {
    bool is_first = true;
    for (std::int64_t before = 0; before < place && is_first; ++before) {
      is_first = targets.weighted(token, before) != entry;
    }
    return is_first;
  }
  TESSERA_FN float gradient_of(std::int64_t token, std::int64_t place, std::int64_t entry,
                               loss_row_gradient const& factors) const {
    float const log_softmax = logits.logit(token, place, entry) - factors.log_sum_exp;
    float const softmax = exp(log_softmax);
    float const spread = smoothing / static_cast<float>(targets.vocabulary);
    float const information = softmax == 0.0F ? 0.0F : softmax * (log_softmax + factors.entropy);
    float const of_others =
        factors.by_loss * (softmax - spread) + factors.by_log_sum_exp * softmax - factors.by_entropy * information;
    float const pull = by_target[token] / *late_scale * (1.0F - smoothing) * targets.weight_of(token, entry);
    return (of_others - pull) * (scaling.slope(logits.scaled(token, place)) * logits.slope(token, place, entry));
  }
};

/// What the portable program asks for the targets of a row: see label_targets.
template <class Rows>
struct wanted_entries {
  static constexpr bool are_labels = false;

  Rows targets;
  array_view<float const> by_target;  ///< of prepare_target_gradients
  float const* late_scale;            ///< the number that the factors of rows were divided by

  /// Which of up to 64 entries, from `first` on, are targets of a token: a bit for each.
  [[nodiscard]] TESSERA_FN std::uint64_t among(std::int64_t token, std::int64_t first, int count) const {
    std::uint64_t found = 0;
    for (std::int64_t place = 0; place < targets.count(); ++place) {
      std::int64_t const beyond = targets.weighted(token, place) - first;
      found |= beyond >= 0 && beyond < count ? std::uint64_t{1} << beyond : 0;
    }
    return found;
  }
  /// What a target subtracts from the gradient by its logit, where labels are not smoothed.
  [[nodiscard]] TESSERA_FN float pull(std::int64_t token, std::int64_t entry) const {
    return by_target[token] / *late_scale * targets.weight_of(token, entry);
  }
};

/// The targets of a loss_gradient_call by entries with weights: see label_targets. Rows: target_rows, or the
/// rank_target_rows of a part of the vocabulary.
template <class Rows, LogitMap Map>
struct entry_targets {
  static constexpr bool are_labels = false;
  /// What the portable program asks.
  using wanted_type = wanted_entries<Rows>;

  Rows targets;
  target_logits<Map> logits;
  array_view<float const> by_target;  ///< of prepare_target_gradients
  std::int64_t first_token = 0;       ///< the token that is the call's first one

  /// The targets of a call for the tokens from `token` on.
  [[nodiscard]] entry_targets from(std::int64_t token) const {
    return {targets, logits, by_target, first_token + token};
  }

  [[nodiscard]] wanted_type wanted(float const* late_scale) const { return {targets, by_target, late_scale}; }

  /// Enqueues the raising of bounds for types of fewer exponents.
  template <Executor Exec>
  void raise_bounds(Exec const& exec, loss_token_list const& tokens, array_view<float> largest) const {
    raise_target_bounds<Rows> const raise{targets, by_target, tokens, largest};
    exec.run(raise, raise.groups());
  }
  /// Enqueues the marking of targets, after that of labels.
  template <Executor Exec>
  void mark(Exec const& exec, loss_mark_reader const& marks, loss_token_list const& tokens) const {
    mark_target_entries<Rows> const entries{marks, targets, tokens.row_of};
    exec.run(entries, entries.groups());
  }
  /// Enqueues the gradients of targets in a part that a fast program has made. Call: a loss_gradient_call. `of_kept`:
  /// the factors of tokens where the part holds kept softmaxes, else null.
  template <Executor Exec, class Call>
  void correct(Exec const& exec, Call const& call, loss_part_range const& range,
               loss_gradient_part<typename Call::value_type> const& part, std::int32_t const* slot_of,
               loss_token_factors const* of_kept) const {
    write_target_gradients<typename Call::value_type, Rows, Map> const write{targets,
                                                                             logits,
                                                                             call.logits.scaling,
                                                                             by_target,
                                                                             first_token,
                                                                             call.space[call.regions.late_scale].data,
                                                                             call.tokens.row_of,
                                                                             call.space[call.regions.rows],
                                                                             call.smoothing,
                                                                             range,
                                                                             slot_of,
                                                                             of_kept,
                                                                             part.gradient,
                                                                             part.kept_for_hidden,
                                                                             part.kept_for_classifier};
    exec.run(write, write.groups());
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
