// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The small programs around loss_gradient_tiles: before it they make the factors of rows, after it they store and
/// scale products and sums.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/loss/logit_gradient.hpp>
#include <tessera/program/loss/token_factors.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The upstream gradients: those of the user's result by the outputs of the loss; null where there are none.
struct loss_upstream {
  array_view<float const> loss = {};         ///< one element, or one for each token without a reduction; null: ones
  array_view<float const> log_sum_exp = {};  ///< one for each token; null: zeros
  array_view<float const> entropy = {};      ///< one for each token; null: zeros
};

/// Makes the factors of rows: all that a gradient by a logit is multiplied by, before and after the softmax.
struct prepare_loss_gradients {
  static constexpr int lanes = 256;
  struct scratch_type {};

  loss_token_list tokens;
  loss_token_weights weights;           ///< what losses are multiplied by
  array_view<float const> row_lse;      ///< log-sum-exps of the tokens that have a label
  array_view<float const> row_entropy;  ///< entropies of the tokens that have a label
  loss_upstream upstream;               ///< upstream gradients
  float z_factor;
  bool is_reduced;                     ///< whether the losses of tokens are reduced to one
  array_view<float const> mean_scale;  ///< one element: finish_loss::scale
  array_view<loss_row_gradient> rows;  ///< the result: the factors of each row of the list
  array_view<float> largest;  ///< the largest bound of each group's rows; null where scale_loss_gradients does not run

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(rows.size(), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    float const common = !is_reduced ? 1.0F : mean_scale[0] * (upstream.loss.data != nullptr ? upstream.loss[0] : 1.0F);
    per_lane<float, G> bound;
    for (int lane : group) {
      std::int64_t const row = which * lanes + lane;
      bound[lane] = 0.0F;
      if (row < tokens.count[0]) {
        rows[row] = factors_of(row, common);
        bound[lane] = bound_of(rows[row]);
      }
    }
    if (largest.data != nullptr) {
      float const of_all = maximum(group, bound);
      for (int lane : group) {
        if (is_first(lane)) {
          largest[which] = of_all;
        }
      }
    }
  }

 private:
  TESSERA_FN loss_row_gradient factors_of(std::int64_t row, float common) const {
    std::int64_t const token = tokens.order[row];
    float const weight = weights.of(token, tokens.labels[row]);
    float const own = !is_reduced && upstream.loss.data != nullptr ? upstream.loss[token] : 1.0F;
    float const by_loss = common * weight * own;
    float const by_lse = upstream.log_sum_exp.data != nullptr ? upstream.log_sum_exp[token] : 0.0F;
    return {row_lse[row], row_entropy[row], by_loss, by_lse + by_loss * 2.0F * z_factor * row_lse[row],
            upstream.entropy.data != nullptr ? upstream.entropy[token] : 0.0F};
  }

  /// A bound of the row's gradients by logits, before the slope: |S - q| and S are at most 1, and -S log S at most 1 /
  /// e. 0 where there is no finite bound.
  TESSERA_FN static float bound_of(loss_row_gradient const& row) {
    float const bound = absolute(row.by_loss) + absolute(row.by_log_sum_exp) +
                        absolute(row.by_entropy) * (0.375F + absolute(row.entropy));
    return is_finite(bound) ? bound : 0.0F;
  }
};

/// Divides the factors of all rows by one number, so that gradients by logits fill the range of fp16: without it they
/// would vanish or overflow where factors are small or large. Sums of products are multiplied by the number again.
///
/// All rows share the number, because the classifier's gradient adds them up. With it the largest bound becomes 2^15;
/// gradients of 2^-29 of that still have all bits of fp16.
struct scale_loss_gradients {
  static constexpr int lanes = 256;
  struct scratch_type {};

  array_view<std::int64_t const> count;  ///< one element: how many rows the list has
  array_view<float const> largest;       ///< bounds of rows, from prepare_loss_gradients
  float steepest;                        ///< a bound of the slopes of logits by sums
  array_view<loss_row_gradient> rows;    ///< the rows whose factors are divided
  array_view<float> late_scale;          ///< one element, which is multiplied by the number

  TESSERA_FN constexpr std::int64_t groups() const { return largest.size(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    per_lane<float, G> bound;
    for (int lane : group) {
      bound[lane] = 0.0F;
      for (std::int64_t i = lane; i < largest.size(); i += lanes) {
        bound[lane] = max(bound[lane], largest[i]);
      }
    }
    float const divisor = divisor_for(maximum(group, bound) * steepest);
    for (int lane : group) {
      std::int64_t const row = which * lanes + lane;
      if (row < count[0]) {
        rows[row].by_loss /= divisor;
        rows[row].by_log_sum_exp /= divisor;
        rows[row].by_entropy /= divisor;
      }
      if (row == 0) {
        late_scale[0] *= divisor;
      }
    }
  }

  /// The number that brings values of at most `bound` to at most 2^15 when they are divided by it: a normal number, and
  /// 1 if the bound is 0.
  TESSERA_FN static constexpr float divisor_for(float bound) {
    constexpr float least = 0x1p-111F;
    constexpr float most = 0x1p127F;
    return bound > 0.0F ? clamp(bound, least, most) / 32768.0F : 1.0F;
  }
};

namespace detail {

/// Writes a gradient, or adds it to what is there, in fp32.
template <class Gradient>
TESSERA_FN void write_gradient(Gradient& target, float gradient, bool accumulates) {
  target = store<Gradient>(accumulates ? static_cast<float>(load(target)) + gradient : gradient);
}

}  // namespace detail

/// The epilogue of gemm_tiles for the classifier's gradient: multiplies sums by a number that is in memory, and writes
/// them or adds them to what the target holds. Each row is written once.
template <class Gradient>
struct write_entries {
  matrix_view<Gradient> target;  ///< entries of a part x channels
  float const* scale;            ///< the last factor of all gradients
  bool accumulates;              ///< whether to add to what the target holds

  /// Takes the finished sum of a row and a channel.
  TESSERA_FN void operator()(std::int64_t row, std::int64_t channel, float sum) const {
    detail::write_gradient(target(row, channel), sum * *scale, accumulates);
  }
};

/// The epilogue of gemm_tiles for gradients of hidden states: adds a part's product to the sums of the parts before it,
/// and rounds the sums after the last part. Between parts the sums are fp32. They lie in the target, or, where that has
/// 16 bits, their upper halves in the target and their lower halves in `remains`. A gradient that accumulates has no
/// sums between parts: each part's product is multiplied by the last factor and added to what the target holds.
template <class Gradient>
struct accumulate_tokens {
  matrix_view<Gradient> target;        ///< tokens x channels
  matrix_view<std::uint16_t> remains;  ///< rows x channels; not used for float, nor if there is one part
  array_view<std::int64_t> order;      ///< the token of each row; negative: none
  float const* scale;                  ///< the last factor of all gradients
  bool is_first_part;                  ///< whether there are no sums yet
  bool is_last_part;                   ///< whether sums become results, rounded
  bool accumulates;                    ///< whether to add to what the target held before the first part

  /// Takes the finished sum of a row and a channel.
  TESSERA_FN void operator()(std::int64_t row, std::int64_t channel, float sum) const {
    std::int64_t const token = order[row];
    if (token < 0) {
      return;
    }
    if (accumulates) {
      detail::write_gradient(target(token, channel), sum * *scale, true);
      return;
    }
    float const total = is_first_part ? sum : sum + before(row, token, channel);
    if (is_last_part) {
      target(token, channel) = store<Gradient>(total * *scale);
    } else {
      keep(row, token, channel, total);
    }
  }

 private:
  TESSERA_FN float before([[maybe_unused]] std::int64_t row, std::int64_t token, std::int64_t channel) const {
    if constexpr (std::is_same_v<Gradient, float>) {
      return target(token, channel);
    } else {
      std::uint32_t const upper = bit_cast<std::uint16_t>(target(token, channel));
      return bit_cast<float>(upper << 16 | remains(row, channel));
    }
  }
  TESSERA_FN void keep([[maybe_unused]] std::int64_t row, std::int64_t token, std::int64_t channel, float total) const {
    if constexpr (std::is_same_v<Gradient, float>) {
      target(token, channel) = total;
    } else {
      auto const bits = bit_cast<std::uint32_t>(total);
      target(token, channel) = bit_cast<Gradient>(static_cast<std::uint16_t>(bits >> 16));
      remains(row, channel) = static_cast<std::uint16_t>(bits);
    }
  }
};

/// Clears the gradients of tokens without a label: zeros, or NaN where the last factor is NaN. Those that accumulate
/// stay as they are, but for that NaN.
template <class Gradient>
struct clear_unlabelled {
  static constexpr int lanes = 128;
  struct scratch_type {};

  array_view<std::int64_t const> row_of;  ///< the row of each token; negative: it has no label; null: none has one
  float const* scale;                     ///< the last factor of all gradients
  matrix_view<Gradient> target;           ///< tokens x channels
  bool accumulates;                       ///< whether the target holds a gradient already

  TESSERA_FN constexpr std::int64_t groups() const { return target.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    if ((row_of.data != nullptr && row_of[which] >= 0) || (accumulates && !is_nan(*scale))) {
      return;
    }
    for (int lane : group) {
      for (std::int64_t channel = lane; channel < target.extent(1); channel += lanes) {
        target(which, channel) = store<Gradient>(0.0F * *scale);
      }
    }
  }
};

/// Sums the columns of a gradient that is in memory. A group sums 128 tokens of 256 entries.
template <class T>
struct sum_gradient_columns {
  static constexpr int lanes = 256;
  static constexpr int rows = 128;  ///< tokens that a group adds up
  struct scratch_type {};

  matrix_view<T const> gradient;                 ///< tokens x entries
  matrix_view<float> column_sums;                ///< rows of blocks x entries
  array_view<loss_token_factors const> factors;  ///< null, or where rows still lack loss_token_factors::by_kept

  /// How many groups cover the entries.
  TESSERA_FN constexpr std::int64_t across() const { return divide_up(gradient.extent(1), std::int64_t{lanes}); }
  TESSERA_FN constexpr std::int64_t groups() const { return column_sums.extent(0) * across(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const block = which / across();
    std::int64_t const last = min((block + 1) * rows, gradient.extent(0));
    for (int lane : group) {
      std::int64_t const entry = which % across() * lanes + lane;
      float sum = 0.0F;
      for (std::int64_t token = block * rows; token < last && entry < gradient.extent(1); ++token) {
        auto const value = static_cast<float>(load(gradient(token, entry)));
        sum = factors.data == nullptr ? sum + value : multiply_add(value, factors[token].by_kept, sum);
      }
      if (entry < gradient.extent(1)) {
        column_sums(block, entry) = sum;
      }
    }
  }
};

/// Makes the gradient of the bias: sums over tiles, from the first to the last row of tiles. Writes them, or adds them
/// to what the target holds. A last factor of 0 makes 0 of any sum.
template <class Gradient>
struct sum_bias_gradient {
  static constexpr int lanes = 256;
  struct scratch_type {};

  matrix_view<float const> column_sums;  ///< rows of tiles x entries
  float const* scale;                    ///< the last factor of all gradients
  array_view<Gradient> target;           ///< the bias's gradient
  bool accumulates;                      ///< whether to add to what the target holds

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(target.size(), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    each_index<lanes>(group, which, target.size(), [&, this](std::int64_t entry) {
      float sum = 0.0F;
      for (std::int64_t tile = 0; tile < column_sums.extent(0); ++tile) {
        sum += column_sums(tile, entry);
      }
      detail::write_gradient(target[entry], *scale == 0.0F ? 0.0F : sum * *scale, accumulates);
    });
  }
};

}  // namespace v0
}  // namespace tessera
