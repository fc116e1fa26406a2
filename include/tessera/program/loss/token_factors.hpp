// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `loss_token_factors`: what a token's gradients depend on, indexed by token, for programs that go through all tokens
/// and not through the list of tokens with a label. `make_loss_factors` makes them from the list.
/// `prepare_loss_parts` also lists the tiles of parts, in the same launch.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/loss/block_lists.hpp>
#include <tessera/program/loss/logit_gradient.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// What a token's gradients depend on, in 32 bytes.
struct alignas(16) loss_token_factors {
  float log_sum_exp;   ///< log-sum-exp of the token's logits, natural
  float by_softmax;    ///< g + h (logit_gradient.hpp)
  float by_loss;       ///< g
  std::int32_t label;  ///< the label's slot in the backward pass; -1: no label, no gradient
  float by_entropy;    ///< k
  float entropy;       ///< entropy of the token's softmax, in nats
  float by_kept;       ///< the factor of the token's sums of kept softmaxes (kept_softmaxes.hpp)
  float unused;        ///< padding to 32 bytes
};

/// Makes the factors of all tokens, and notes that no block is kept yet. Run with a group for each block of 128 tokens.
template <class T>
struct make_loss_factors {
  static constexpr int block_tokens = 128;  ///< tokens of a group
  static constexpr int lanes = list_loss_tiles::lanes;
  struct scratch_type {};

  loss_token_list list;                      ///< which tokens have a label
  array_view<loss_row_gradient const> rows;  ///< the factors of the list's rows
  matrix_view<T const> hidden;               ///< tokens x channels
  std::int32_t const* slot_of;               ///< the slot of each entry in the backward pass; null: its own number
  array_view<loss_token_factors> factors;    ///< one for each token
  /// For each block, 1: a token without a label has hidden states that are not finite.
  array_view<std::uint8_t> unclean;
  array_view<std::uint8_t> kept;  ///< which blocks of tokens and entries are kept: cleared

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(factors.size(), std::int64_t{block_tokens}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const first = which * block_tokens;
    std::int64_t const last = min(first + block_tokens, factors.size());
    std::int64_t const share = divide_up(kept.size(), groups());
    per_lane<bool, G> bad;
    for (int lane : group) {
      bad[lane] = false;
      if (first + lane < last) {
        factors[first + lane] = of_token(list.row_of[first + lane]);
      }
      for (std::int64_t i = which * share + lane; i < min((which + 1) * share, kept.size()); i += lanes) {
        kept[i] = 0;
      }
    }
    for (std::int64_t token = first; token < last; ++token) {
      if (list.row_of[token] < 0) {
        for (int lane : group) {
          for (std::int64_t channel = lane; channel < hidden.extent(1); channel += lanes) {
            bad[lane] = bad[lane] || !is_finite(static_cast<float>(load(hidden(token, channel))));
          }
        }
      }
    }
    bool const is_unclean = any(group, bad);
    for (int lane : group) {
      if (is_first(lane)) {
        unclean[which] = is_unclean ? 1 : 0;
      }
    }
  }

 private:
  TESSERA_FN loss_token_factors of_token(std::int64_t row) const {
    if (row < 0) {
      return {0.0F, 0.0F, 0.0F, -1, 0.0F, 0.0F, 1.0F, {}};
    }
    loss_row_gradient const from = rows[row];
    std::int32_t const label = list.labels[row];
    return {from.log_sum_exp,
            from.by_loss + from.by_log_sum_exp,
            from.by_loss,
            slot_of != nullptr ? slot_of[label] : label,
            from.by_entropy,
            from.entropy,
            1.0F,
            {}};
  }
};

/// Runs `make_loss_factors`, then with further groups `list_loss_tiles`, which reads nothing of what the first writes.
template <class T>
struct prepare_loss_parts {
  static constexpr int lanes = list_loss_tiles::lanes;
  struct scratch_type {};

  make_loss_factors<T> make;  ///< factors of tokens
  list_loss_tiles list;       ///< tiles of parts

  TESSERA_FN constexpr std::int64_t groups() const { return make.groups() + list.groups(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const making = make.groups();
    if (which < making) {
      typename make_loss_factors<T>::scratch_type none;
      make(group, which, none);
    } else {
      list_loss_tiles::scratch_type none;
      list(group, which - making, none);
    }
  }
};

/// Runs `make_loss_factors`, and clears the counters by which tiles of all parts wait for each other.
template <class T>
struct prepare_counted_parts {
  static constexpr int lanes = make_loss_factors<T>::lanes;
  struct scratch_type {};

  make_loss_factors<T> make;          ///< factors of tokens
  array_view<std::int32_t> counters;  ///< become zeros

  TESSERA_FN constexpr std::int64_t groups() const { return make.groups() + 1; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    if (which < make.groups()) {
      typename make_loss_factors<T>::scratch_type none;
      make(group, which, none);
      return;
    }
    for (int lane : group) {
      for (std::int64_t i = lane; i < counters.size(); i += lanes) {
        counters[i] = 0;
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
