// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The small programs around loss_gradient_tiles: factors of rows before it, and what becomes of products and sums
/// after it.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/loss_gradient_tiles.hpp>
#include <tessera/program/loss_tokens.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Gradients of what the user computed from the outputs; null where there are none.
struct loss_upstream {
  array_view<float const> loss = {};         ///< one element, or one for each token without a reduction; null for ones
  array_view<float const> log_sum_exp = {};  ///< for each token
  array_view<float const> entropy = {};      ///< for each token
};

/// The factors of rows. One that all rows share, 1 / total weight * the upstream gradient of a reduced loss, is not
/// among them where it can wait until products are summed up: so gradients do not vanish in fp16.
struct prepare_loss_gradients {
  static constexpr int lanes = 256;
  struct scratch_type {};

  loss_token_list tokens;
  array_view<float const> weights;      ///< of tokens, or null
  array_view<float const> row_lse;      ///< log-sum-exps of the tokens that have a label
  array_view<float const> row_entropy;  ///< entropies of the tokens that have a label
  loss_upstream upstream;               ///< gradients of the results
  float z_factor;
  bool is_reduced;                     ///< else a loss for each token
  array_view<float const> mean_scale;  ///< one element
  array_view<loss_row_gradient> rows;  ///< what each row of the list depends on: the result
  array_view<float> late_scale;        ///< one element, for the programs after

  TESSERA_FN constexpr std::int64_t groups() const {
    return max(divide_up(rows.size(), std::int64_t{lanes}), std::int64_t{1});
  }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    float const common = !is_reduced ? 1.0F : mean_scale[0] * (upstream.loss.data != nullptr ? upstream.loss[0] : 1.0F);
    bool const can_wait = upstream.log_sum_exp.data == nullptr && upstream.entropy.data == nullptr;
    for (int lane : group) {
      std::int64_t const row = which * lanes + lane;
      if (row == 0) {
        late_scale[0] = can_wait ? common : 1.0F;
      }
      if (row < tokens.count[0]) {
        write_row(row, can_wait ? 1.0F : common);
      }
    }
  }

 private:
  TESSERA_FN void write_row(std::int64_t row, float common) const {
    std::int64_t const token = tokens.order[row];
    float const weight = weights.data != nullptr ? weights[token] : 1.0F;
    float const own = !is_reduced && upstream.loss.data != nullptr ? upstream.loss[token] : 1.0F;
    float const by_loss = common * weight * own;
    float const by_lse = upstream.log_sum_exp.data != nullptr ? upstream.log_sum_exp[token] : 0.0F;
    rows[row] = {row_lse[row], row_entropy[row], by_loss, by_lse + by_loss * 2.0F * z_factor * row_lse[row],
                 upstream.entropy.data != nullptr ? upstream.entropy[token] : 0.0F};
  }
};

/// A map of sums: times a number that is in memory.
struct scaled_by_memory {
  float const* scale;  ///< in memory
  /// What is stored for a sum.
  TESSERA_FN constexpr float operator()(float sum, std::int64_t, std::int64_t) const { return sum * *scale; }
};

/// The epilogue of gemm_tiles for gradients of hidden states: adds to what parts of the vocabulary before have left,
/// and after the last one writes to the rows of tokens. Between parts sums are fp32: in the target, or, where that has
/// 16 bits, their upper halves there and their lower halves in `remains`.
template <class Gradient>
struct accumulate_tokens {
  matrix_view<Gradient> target;        ///< tokens x channels
  matrix_view<std::uint16_t> remains;  ///< tokens x channels; not used for float, nor if there is one part
  array_view<std::int64_t> order;      ///< the token of each row; negative: none
  float const* scale;
  bool is_first_part;  ///< nothing is there yet
  bool is_last_part;   ///< results are rounded

  /// Takes the finished sum of a row and a channel.
  TESSERA_FN void operator()(std::int64_t row, std::int64_t channel, float sum) const {
    std::int64_t const token = order[row];
    if (token < 0) {
      return;
    }
    float const total = is_first_part ? sum : sum + before(token, channel);
    if (is_last_part) {
      target(token, channel) = store<Gradient>(total * *scale);
    } else {
      keep(token, channel, total);
    }
  }

 private:
  TESSERA_FN float before(std::int64_t token, std::int64_t channel) const {
    if constexpr (std::is_same_v<Gradient, float>) {
      return target(token, channel);
    } else {
      std::uint32_t const upper = bit_cast<std::uint16_t>(target(token, channel));
      return bit_cast<float>(upper << 16 | remains(token, channel));
    }
  }
  TESSERA_FN void keep(std::int64_t token, std::int64_t channel, float total) const {
    if constexpr (std::is_same_v<Gradient, float>) {
      target(token, channel) = total;
    } else {
      auto const bits = bit_cast<std::uint32_t>(total);
      target(token, channel) = bit_cast<Gradient>(static_cast<std::uint16_t>(bits >> 16));
      remains(token, channel) = static_cast<std::uint16_t>(bits);
    }
  }
};

/// Zeros for tokens that are in no row.
template <class Gradient>
struct clear_unlabelled {
  static constexpr int lanes = 128;
  struct scratch_type {};

  array_view<std::int64_t const> row_of;  ///< of each token; negative: it has no label
  matrix_view<Gradient> target;           ///< tokens x channels

  TESSERA_FN constexpr std::int64_t groups() const { return target.extent(0); }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    if (row_of[which] >= 0) {
      return;
    }
    for (int lane : group) {
      for (std::int64_t channel = lane; channel < target.extent(1); channel += lanes) {
        target(which, channel) = store<Gradient>(0.0F);
      }
    }
  }
};

/// Sums over the columns of a gradient that is in memory: of each 128 tokens those of 256 entries to a group.
template <class T>
struct sum_gradient_columns {
  static constexpr int lanes = 256;
  static constexpr int rows = 128;  ///< that a group adds up
  struct scratch_type {};

  matrix_view<T const> gradient;   ///< tokens x entries
  matrix_view<float> column_sums;  ///< rows of blocks x entries

  /// Groups beside each other.
  TESSERA_FN constexpr std::int64_t across() const { return divide_up(gradient.extent(1), std::int64_t{lanes}); }
  TESSERA_FN constexpr std::int64_t groups() const { return column_sums.extent(0) * across(); }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const block = which / across();
    std::int64_t const last = min((block + 1) * rows, gradient.extent(0));
    for (int lane : group) {
      std::int64_t const entry = which % across() * lanes + lane;
      float sum = 0.0F;
      for (std::int64_t token = block * rows; token < last && entry < gradient.extent(1); ++token) {
        sum += static_cast<float>(load(gradient(token, entry)));
      }
      if (entry < gradient.extent(1)) {
        column_sums(block, entry) = sum;
      }
    }
  }
};

/// The gradient of the bias: sums of tiles, from the first to the last row of tiles.
template <class Gradient>
struct sum_bias_gradient {
  static constexpr int lanes = 256;
  struct scratch_type {};

  matrix_view<float const> column_sums;  ///< rows of tiles x entries
  float const* scale;
  array_view<Gradient> target;  ///< of the bias

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(target.size(), std::int64_t{lanes}); }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const entry = which * lanes + lane;
      if (entry < target.size()) {
        float sum = 0.0F;
        for (std::int64_t tile = 0; tile < column_sums.extent(0); ++tile) {
          sum += column_sums(tile, entry);
        }
        target[entry] = store<Gradient>(sum * *scale);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
