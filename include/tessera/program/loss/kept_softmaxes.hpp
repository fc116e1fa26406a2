// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `kept_softmaxes`: exponentials of logits, in the type of the operands, that a forward pass of a loss leaves for the
/// backward pass where there is memory for them, so that no logits are made twice. `choose_references` says what
/// exponentials of a token are relative to. `prepare_softmaxes` makes of them what the backward pass multiplies, and
/// `set_softmaxes` notes whether there are any.
///
/// The gradient by the logits G of a token t (loss/logit_gradient.hpp) is, except at its label, its exponentials P
/// times one factor, and so the products with it need no G:
///
///     G(t, v) = a(t) P(t, v),   a(t) = (g + h) 2^(reference(t) - log2(e) lse(t))
///     gradient of hidden states = a(t) (P C)(t)               a factor of the rows of sums
///     gradient of the classifier = P^T (a E)                  a factor of the rows of hidden states
///
/// At the label P becomes what G is there, divided by a(t), and a(t) takes what rounding that leaves. It takes types
/// with the exponents of a float, and a reference that is at most 64 below the largest logit, in units of log 2: it is
/// the label's logit, which is within 64 of it unless the model gives the label less than 2^-64. Tokens of which that
/// is not true, and all tokens of types with fewer exponents, have a reference for each 192 entries, or for each 64 of
/// the program for sm_80 and later, their largest logit, and become gradients in place. Where references lie, see
/// detail/signed_references.hpp.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/status.hpp>
#include <tessera/program/loss/detail/signed_references.hpp>
#include <tessera/program/loss/logits.hpp>
#include <tessera/program/loss/token_factors.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/row_chunks.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

template <class T>
struct kept_softmaxes {
  static constexpr int tile_entries = 192;  ///< entries of a tile of `references`
  /// The state of memory that holds no softmaxes.
  static constexpr std::int32_t none = 0;
  static constexpr std::int32_t there = 1;  ///< forward() has left softmaxes; backward() uses them up
  static constexpr int used_up = 8;         ///< what is reported of a second backward(), after all of loss_stamp::part
  /// Whether all entries of a token can share a reference: T has as many exponents as a float.
  static constexpr bool shares_references = scalar_traits<T>::exponent_bits >= scalar_traits<float>::exponent_bits;
  /// How far above a shared reference logits may be, in units of log 2: sums of 2^32 of them stay below 2^97, and the
  /// factors of hidden states above 2^-64 times their own.
  static constexpr float most_above = 64.0F;

  /// Tokens x entries: slope * 2^(logit * log2(e) - reference), with the softcap's slope; rows at multiples of 16
  /// bytes. Zeros for tokens without a label.
  matrix_view<T> values;
  matrix_view<float> references;        ///< tiles of entries x tokens; minus infinity where all logits are; or unused
  array_view<float> shared_references;  ///< the reference of each token's tiles, but for those that are too far above
  array_view<std::int32_t> is_uneven;   ///< 1 for each token that has tiles with other references
  array_view<std::int32_t> state;       ///< one element: `none` or `there`

  /// Whether there is memory for softmaxes.
  [[nodiscard]] TESSERA_FN constexpr bool are_wanted() const { return values.data != nullptr; }
};

/// Chooses kept_softmaxes::shared_references: the labels' logits; 0 where they are not finite. Run with a group for
/// each token.
///
/// Cost: 4 bytes of memory traffic for each channel and token, for operands of 16 bits.
template <class T>
struct choose_references {
  static constexpr int lanes = 32;
  static constexpr int groups_per_block = 4;
  struct scratch_type {};

  loss_token_list list;                ///< which tokens have a label
  row_chunks<T const> hidden;          ///< tokens x channels
  row_chunks<T const> classifier;      ///< vocabulary x channels
  logit_scaling<T> scaling;            ///< from sums to logits
  array_view<float> references;        ///< the result, one for each token
  array_view<std::int32_t> is_uneven;  ///< set to 0 for each token

  TESSERA_FN constexpr std::int64_t groups() const { return references.size(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t token, scratch_type&) const {
    constexpr float log2_e = 1.442695041F;
    constexpr float most = 1e30F;
    std::int64_t const row = list.row_of[token];
    std::int64_t const label = row < 0 ? 0 : list.labels[row];
    per_lane<float, G> own;
    for (int lane : group) {
      own[lane] = row < 0 ? 0.0F : multiply(token, label, lane);
    }
    float const sum = reduce(group, own, detail::plus{});
    for (int lane : group) {
      if (is_first(lane)) {
        float const logit = row < 0 ? 0.0F : round_to_even(scaling(sum, label) * log2_e);
        references[token] = absolute(logit) < most ? logit : 0.0F;
        is_uneven[token] = 0;
      }
    }
  }

 private:
  /// A lane's part of the sum of products.
  TESSERA_FN float multiply(std::int64_t token, std::int64_t label, int lane) const {
    constexpr int size = row_chunks<T const>::size;
    float sum = 0.0F;
    for (std::int64_t channel = std::int64_t{lane} * size; channel < hidden.matrix.extent(1); channel += lanes * size) {
      auto const state = hidden.load(token, channel);
      auto const weight = classifier.load(label, channel);
      for (int i = 0; i < size; ++i) {
        sum = multiply_add(static_cast<float>(load(state.values[i])), static_cast<float>(load(weight.values[i])), sum);
      }
    }
    return sum;
  }
};

/// Sets kept_softmaxes::state. Run with one group.
struct set_softmaxes {
  static constexpr int lanes = 32;
  struct scratch_type {};

  array_view<std::int32_t> state;  ///< one element
  std::int32_t value;              ///< the value that it gets

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    for (int lane : group) {
      if (lane == 0) {
        state[0] = value;
      }
    }
  }
};

/// Makes of kept softmaxes what the backward pass multiplies; run with a group for each token. A token whose tiles
/// share a reference gets its factor a(t) and its hidden state times a(t), and the value of its label is replaced.
/// Other tokens' values become gradients by logits in place, and their factor is 1. It takes no smoothing and no
/// gradients of entropies, with which the gradient of an entry whose exponential is 0 would not be 0. It keeps all
/// blocks.
///
/// Where there are no softmaxes, gradients become NaN and the status word says other_forward at position `used_up`.
/// References: where the forward pass wrote references that tiles do not share, references_of_tiles or
/// references_in_signs.
///
/// Cost, for operands of 16 bits: 4 bytes of memory traffic for each channel and token, and for tokens without a shared
/// reference 4 bytes for each entry, too.
template <class T, class References = references_of_tiles>
struct prepare_softmaxes {
  static constexpr int lanes = 256;
  /// Thread blocks that wait on multiprocessors before their turn slow the backward pass down: with `true`, and without
  /// shared references, both passes of 8192 tokens took 54.2 ms in place of 52.0 for 256000 x 2304, and 47.1 in place
  /// of 43.9 for 128256 x 4096 (H200, a workspace of 4 GiB).
  static constexpr bool starts_early = false;
  static constexpr int together = References::template together<T>;  ///< entries that a lane takes at a time
  struct scratch_type {};
  /// What a lane takes at a time.
  struct alignas(16) part {
    T values[together];  ///< neighbouring entries
  };

  kept_softmaxes<T> kept;                 ///< the softmaxes, which change in place
  array_view<loss_token_factors> tokens;  ///< loss_token_factors::by_kept is the result
  array_view<std::int64_t const> row_of;  ///< the row of each token in the list of tokens with a label; -1: none
  array_view<float const> targets;        ///< the label's logit of each row of the list
  logit_scaling<T> scaling;
  row_chunks<T const> hidden;                     ///< tokens x channels
  row_chunks<T> scaled_hidden;                    ///< the result: hidden states times by_kept; zeros without a label
  matrix_view<std::uint8_t> kept_for_hidden;      ///< blocks of 128 tokens x blocks of 128 entries
  matrix_view<std::uint8_t> kept_for_classifier;  ///< blocks of 128 tokens x blocks of 128 entries
  status_word* status;
  bool has_others = false;  ///< whether tokens may have gradients by other entries, too, which are written later

  TESSERA_FN constexpr std::int64_t groups() const { return kept.values.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    bool const is_there = kept.state[0] == kept_softmaxes<T>::there;
    loss_token_factors const factors = tokens[which];
    shared_factor const shared = share(which, factors, is_there);
    float const by_kept = factors.label < 0 ? 0.0F : shared.is_shared ? shared.factor : 1.0F;
    group.sync();  // all lanes have read what one overwrites
    for (int lane : group) {
      if (!is_there && which == 0 && lane == 0) {
        group.report(status, status_code::other_forward, kept_softmaxes<T>::used_up);
      }
      if (lane == 0) {
        tokens[which].by_kept = by_kept;
      }
      if (!shared.is_shared) {
        differentiate_row(which, lane, factors, is_there);
      } else if (lane == 0 && shared.factor != 0.0F && factors.label < kept.values.extent(1)) {
        kept.values(which, factors.label) = store<T>(shared.of_label);
      }
      scale_hidden(which, lane, by_kept);
      for (std::int64_t block = lane; which % 128 == 0 && block * 128 < kept.values.extent(1); block += lanes) {
        kept_for_hidden(which / 128, block) = 1;
        kept_for_classifier(which / 128, block) = 1;
      }
    }
  }

 private:
  static constexpr float log2_e = 1.442695041F;

  /// The factor of a token whose tiles share a reference.
  struct shared_factor {
    bool is_shared;
    float factor;    ///< a(t); 0: the token has no gradient
    float of_label;  ///< the label's gradient by its logit, divided by a(t)
  };
  /// Whether a token's tiles share a reference, and its factor stays in the range of numbers where it is as accurate as
  /// gradients in place are.
  TESSERA_FN shared_factor share(std::int64_t token, loss_token_factors const& factors, bool is_there) const {
    constexpr float least = 0x1p-90F;
    constexpr float most = 0x1p90F;
    if (!kept_softmaxes<T>::shares_references || !is_there) {
      return {false, 0.0F, 0.0F};
    }
    if (factors.label < 0) {
      return {true, 0.0F, 0.0F};
    }
    float const power = multiply_add(-factors.log_sum_exp, log2_e, kept.shared_references[token]);
    float const factor = factors.by_softmax * exp2(power) * scaling.inverse_temperature;
    float const gradient = of_label(token, factors);
    auto const of_kept = static_cast<float>(load(store<T>(gradient / factor)));
    bool const is_nothing = factor == 0.0F && gradient == 0.0F && factors.by_softmax == 0.0F && !has_others;
    bool const is_in_range = absolute(factor) >= least && absolute(factor) <= most && absolute(of_kept) <= most;
    // The factor takes what rounding the label's value leaves, since most of a token's gradient is at its label.
    float const whole = of_kept != 0.0F ? gradient / of_kept : factor;
    return {kept.is_uneven[token] == 0 && (is_nothing || is_in_range), is_nothing ? 0.0F : whole, of_kept};
  }

  /// Writes a lane's part of a token's hidden state times `factor`; zeros for 0, whatever the hidden state holds.
  TESSERA_FN void scale_hidden(std::int64_t token, int lane, float factor) const {
    constexpr int size = row_chunks<T>::size;
    for (std::int64_t channel = std::int64_t{lane} * size; channel < hidden.matrix.extent(1); channel += lanes * size) {
      auto chunk = hidden.load(token, channel);
      for (int i = 0; i < size; ++i) {
        float const value = static_cast<float>(load(chunk.values[i])) * factor;
        chunk.values[i] = store<T>(factor == 0.0F ? 0.0F : value);
      }
      scaled_hidden.store(token, channel, chunk);
    }
  }

  struct loaded_part {
    part values;
    float reference;  ///< unless their signs have another
  };
  TESSERA_FN loaded_part load_part(std::int64_t token, std::int64_t entry) const {
    if (entry >= kept.values.extent(1)) {
      return {};
    }
    if constexpr (References::are_in_signs) {
      return {*reinterpret_cast<part const*>(&kept.values(token, entry)), References::find(kept, token, entry)};
    }
    return {*reinterpret_cast<part const*>(&kept.values(token, entry)),
            kept.references(entry / kept_softmaxes<T>::tile_entries, token)};
  }

  /// Differentiates the row of a token. Two parts are being loaded while one is changed.
  TESSERA_FN void differentiate_row(std::int64_t token, int lane, loss_token_factors const& factors,
                                    bool is_there) const {
    constexpr std::int64_t step = lanes * together;
    loaded_part first = load_part(token, lane * together);
    loaded_part second = load_part(token, lane * together + step);
    for (std::int64_t entry = lane * together; entry < kept.values.extent(1); entry += step) {
      loaded_part const third = load_part(token, entry + 2 * step);
      if constexpr (References::are_in_signs) {
        first.reference = References::settle(first.values, first.reference);
      }
      differentiate<0>(first.values, factors_of(first.reference, factors, is_there));
      *reinterpret_cast<part*>(&kept.values(token, entry)) = first.values;
      std::int64_t const label = factors.label;
      if (label >= entry && label < entry + together && is_there) {
        kept.values(token, label) = store<T>(of_label(token, factors));
      }
      first = second;
      second = third;
    }
  }

  /// The factors of a part's values. Without `is_used` the gradient is 0, whatever the values are.
  struct value_factors {
    float by_value;
    bool is_used;
  };
  TESSERA_FN value_factors factors_of(float reference, loss_token_factors const& factors, bool is_there) const {
    float const softmax = exp2(multiply_add(-factors.log_sum_exp, log2_e, reference));
    bool const is_used = factors.label >= 0;
    return {is_there ? softmax * factors.by_softmax * scaling.inverse_temperature : detail::not_a_number,
            is_used || !is_there};
  }

  /// Differentiates the values of a part that begin with number I; it recurses, so that all indices are constants and
  /// values stay in registers.
  template <int I>
  TESSERA_FN void differentiate(part& values, value_factors const& by) const {
    if constexpr (I < together) {
      float const gradient = static_cast<float>(load(values.values[I])) * by.by_value;
      values.values[I] = store<T>(by.is_used ? gradient : 0.0F);
      differentiate<I + 1>(values, by);
    }
  }
  /// The gradient of the label, from its own logit: near 1 a softmax of 16 bits does not tell how far it is from 1.
  TESSERA_FN float of_label(std::int64_t token, loss_token_factors const& factors) const {
    float const logit = targets[row_of[token]];
    float const softmax = exp2((logit - factors.log_sum_exp) * log2_e);
    return (factors.by_softmax * softmax - factors.by_loss) * scaling.slope(logit);
  }
};

}  // namespace v0
}  // namespace tessera
