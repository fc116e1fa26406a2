// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `kept_softmaxes`: exponentials of logits, in the type of the operands, that a forward pass of a loss leaves for the
/// backward pass where there is memory for them, so that no logits are made twice. `differentiate_softmaxes` turns them
/// in place into the gradient of the loss by the logits. `set_softmaxes` notes whether there are any.
///
/// Exponentials are relative to the token's largest logit among 192 entries: their relative error is that of one
/// rounding, whatever the log-sum-exp will be. The gradient is then rounded twice.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/status.hpp>
#include <tessera/program/loss/logits.hpp>
#include <tessera/program/loss/token_factors.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

template <class T>
struct kept_softmaxes {
  static constexpr int tile_entries = 192;  ///< entries of a tile, which share a reference
  /// The state of memory that holds no softmaxes.
  static constexpr std::int32_t none = 0;
  static constexpr std::int32_t there = 1;  ///< forward() has left softmaxes; backward() uses them up
  static constexpr int used_up = 8;         ///< what is reported of a second backward(), after all of loss_stamp::part

  matrix_view<T> values;           ///< tokens x entries: 2^(logit * log2(e) - reference); rows at multiples of 16 bytes
  matrix_view<float> references;   ///< tiles of entries x tokens; minus infinity where all logits are
  array_view<std::int32_t> state;  ///< one element: `none` or `there`

  /// Whether there is memory for softmaxes.
  [[nodiscard]] TESSERA_FN constexpr bool are_wanted() const { return values.data != nullptr; }
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

/// Turns kept softmaxes into gradients by logits; run with a group for each token. It takes no smoothing and no
/// gradients of entropies, with which the gradient of an entry whose exponential is 0 would not be 0. Equations:
/// loss/logit_gradient.hpp. It keeps all blocks.
///
/// Where there are no softmaxes, gradients become NaN and the status word says other_forward at position `used_up`.
///
/// Cost: 4 bytes of memory traffic for each entry and token, for operands of 16 bits.
template <class T>
struct differentiate_softmaxes {
  static constexpr int lanes = 256;
  /// Thread blocks that wait on multiprocessors before their turn slow the backward pass down: with `true` both passes
  /// of 8192 tokens take 54.2 ms in place of 52.0 for 256000 x 2304, and 47.1 in place of 43.9 for 128256 x 4096 (H200,
  /// a workspace of 4 GiB).
  static constexpr bool starts_early = false;
  static constexpr int together = 16 / static_cast<int>(sizeof(T));  ///< entries that a lane takes at a time
  struct scratch_type {};
  /// The 16 bytes that a lane takes at a time.
  struct alignas(16) part {
    T values[together];  ///< neighbouring entries
  };

  kept_softmaxes<T> kept;  ///< the softmaxes, which become gradients in place
  array_view<loss_token_factors const> tokens;
  array_view<std::int64_t const> row_of;  ///< the row of each token in the list of tokens with a label; -1: none
  array_view<float const> targets;        ///< the label's logit of each row of the list
  logit_scaling<T> scaling;
  matrix_view<std::uint8_t> kept_for_hidden;      ///< blocks of 128 tokens x blocks of 128 entries
  matrix_view<std::uint8_t> kept_for_classifier;  ///< blocks of 128 tokens x blocks of 128 entries
  status_word* status;

  TESSERA_FN constexpr std::int64_t groups() const { return kept.values.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    bool const is_there = kept.state[0] == kept_softmaxes<T>::there;
    loss_token_factors const factors = tokens[which];
    for (int lane : group) {
      if (!is_there && which == 0 && lane == 0) {
        group.report(status, status_code::other_forward, kept_softmaxes<T>::used_up);
      }
      differentiate_row(which, lane, factors, is_there);
      for (std::int64_t block = lane; which % 128 == 0 && block * 128 < kept.values.extent(1); block += lanes) {
        kept_for_hidden(which / 128, block) = 1;
        kept_for_classifier(which / 128, block) = 1;
      }
    }
  }

 private:
  static constexpr float log2_e = 1.442695041F;

  struct loaded_part {
    part values;
    float reference;
  };
  TESSERA_FN loaded_part load_part(std::int64_t token, std::int64_t entry) const {
    if (entry >= kept.values.extent(1)) {
      return {};
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
    float reference;
    bool is_used;
  };
  TESSERA_FN value_factors factors_of(float reference, loss_token_factors const& factors, bool is_there) const {
    float const softmax = exp2(multiply_add(-factors.log_sum_exp, log2_e, reference));
    bool const is_used = factors.label >= 0;
    return {is_there ? softmax * factors.by_softmax * scaling.inverse_temperature : detail::not_a_number, reference,
            is_used || !is_there};
  }

  /// Differentiates the values of a part that begin with number I; it recurses, so that all indices are constants and
  /// values stay in registers.
  template <int I>
  TESSERA_FN void differentiate(part& values, value_factors const& by) const {
    if constexpr (I < together) {
      auto const value = static_cast<float>(load(values.values[I]));
      float gradient = value * by.by_value;
      if (scaling.cap > 0.0F && value > 0.0F) {
        gradient *= scaling.slope((log2(value) + by.reference) / log2_e) / scaling.inverse_temperature;
      }
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
