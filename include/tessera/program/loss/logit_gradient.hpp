// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `loss_gradient_tiles`: makes the gradient of a loss by the sums that become logits, for a part of the vocabulary,
/// and marks the blocks of it that are kept. It is the portable program at the heart of linear_loss's backward pass.
///
/// With S the softmax, q the target distribution, H the entropy, and for each token factors g, h, k
/// (loss_row_gradient):
///
///     by the logit:  g (S - q) + h S - k S (log S + H)           by the sum:  that * the logit's slope
///
/// All of it is fp32, from logits that are made again; the result is rounded once, to the type of the operands. A block
/// is left out of a gradient where |S - q| is below its threshold for all elements: the paper's rule, before any
/// factor. A NaN keeps its block. Sums over columns, for the bias, leave out nothing.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/program/loss/logits.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// What the gradients by a row's logits depend on.
struct loss_row_gradient {
  float log_sum_exp;     ///< log-sum-exp of the row, natural
  float entropy;         ///< entropy of the row, in nats
  float by_loss;         ///< g: the factor of S - q
  float by_log_sum_exp;  ///< h: the factor of S
  float by_entropy;      ///< k: the factor of -S (log S + H)
};

/// The thresholds of the filter: blocks below them are left out; 0: none are.
struct gradient_thresholds {
  float hidden;      ///< threshold of the gradient of hidden states, a probability
  float classifier;  ///< threshold of the classifier's gradient, a probability
};

/// The gradient by the logits for one part of the vocabulary, and which of its blocks are kept.
template <class T>
struct loss_gradient_part {
  std::int64_t first;                             ///< first entry of the vocabulary
  matrix_view<T> gradient;                        ///< tokens x entries
  matrix_view<std::uint8_t> kept_for_hidden;      ///< 1 for each block that counts in gradients of hidden states
  matrix_view<std::uint8_t> kept_for_classifier;  ///< 1 for each block that counts in the classifier's gradient
  matrix_view<float> column_sums;                 ///< rows of tiles x entries, or null
};

/// Targets of tokens that are their labels. Those of a soft_target_loss are entries with weights, which have more
/// functions, and are asked where are_labels is false.
struct label_targets {
  static constexpr bool are_labels = true;  ///< whether a token's label is all that it wants
  /// What the portable program asks.
  using wanted_type = label_targets;

  /// What the portable program asks, given the number that the factors of rows were divided by.
  [[nodiscard]] constexpr label_targets wanted(float const*) const { return {}; }
  /// The targets of a call for the tokens from a number on.
  [[nodiscard]] constexpr label_targets from(std::int64_t) const { return {}; }
};

/// Makes gradients by logits. Filter has the extents of a block, which divide those of the tile, as gradient_filter
/// does. Targets: label_targets, or detail::wanted_entries; then the labels of tokens are not looked at.
template <class Tile, class Filter, LogitMap Map = identity_logits, class Targets = label_targets>
struct loss_gradient_tiles {
  using layout = loss_tile<Tile>;
  using value_type = typename layout::value_type;
  static constexpr int lanes = layout::lanes;
  static constexpr int blocks_per_multiprocessor = layout::blocks_per_multiprocessor;
  static constexpr int block_rows = min(Filter::rows, layout::rows);           ///< tokens of a block of the filter
  static constexpr int block_columns = min(Filter::columns, layout::columns);  ///< entries of a block of the filter
  static constexpr int across = layout::columns / block_columns;               ///< blocks beside each other in a tile
  static constexpr int blocks = layout::rows / block_rows * across;            ///< blocks of a tile
  static_assert(layout::rows % block_rows == 0 && layout::columns % block_columns == 0 && blocks <= 1024,
                "tessera: the blocks of a gradient_filter divide the tile of the loss, into at most 1024 of them");

  struct scratch_type {
    typename layout::scratch_type tile;    ///< for logits
    std::uint32_t for_hidden[blocks];      ///< how many elements of each block reach thresholds.hidden
    std::uint32_t for_classifier[blocks];  ///< how many elements of each block reach thresholds.classifier
  };

  loss_logits<Tile, Map> logits;  ///< the matrices whose products become logits
  loss_token_list tokens;
  array_view<loss_row_gradient const> rows;  ///< the factors of each row of the list
  float smoothing;
  gradient_thresholds thresholds;
  loss_gradient_part<value_type> part;  ///< where gradients go
  Targets targets = {};                 ///< what tokens want
  std::int64_t rows_before = 0;         ///< rows of the list before those of these views

  /// How many tiles cover the entries of the part.
  TESSERA_FN constexpr std::int64_t column_tiles() const {
    return divide_up(part.gradient.extent(1), std::int64_t{layout::columns});
  }
  TESSERA_FN constexpr std::int64_t groups() const { return logits.row_tiles() * column_tiles(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const row_tile = which % logits.row_tiles();
    std::int64_t const column_tile = which / logits.row_tiles();
    std::int64_t const first_row = row_tile * layout::rows;
    auto const height =
        static_cast<int>(clamp(tokens.count[0] - rows_before - first_row, std::int64_t{0}, std::int64_t{layout::rows}));
    for (int lane : group) {
      for (int block = lane; block < blocks; block += lanes) {
        scratch.for_hidden[block] = scratch.for_classifier[block] = 0;
      }
    }
    if (height > 0) {
      logits.compute(group, first_row, part.first + column_tile * layout::columns, scratch.tile);
      for (int lane : group) {
        if (lane % layout::rows < height) {
          differentiate(group, lane, first_row, column_tile * layout::columns, scratch);
        }
      }
    }
    group.sync();
    for (int lane : group) {
      write_gradient(lane, height, first_row, column_tile * layout::columns, scratch);
      write_blocks(lane, row_tile, column_tile, scratch);
      write_column_sum(lane, height, row_tile, column_tile * layout::columns, scratch.tile);
    }
  }

 private:
  TESSERA_FN constexpr int width(std::int64_t first_column) const {
    return static_cast<int>(min(part.gradient.extent(1) - first_column, std::int64_t{layout::columns}));
  }

  /// Which of the entries of a lane's part of a row the targets name, from entry `first` on.
  TESSERA_FN std::uint64_t wanted_among([[maybe_unused]] std::int64_t row, [[maybe_unused]] std::int64_t first) const {
    if constexpr (Targets::are_labels) {
      return 0;
    } else {
      static_assert(layout::part_columns <= 64, "tessera: a lane differentiates at most 64 entries of a row");
      return targets.among(tokens.order[row], first, layout::part_columns);
    }
  }

  /// Turns the logits of a lane's part of a row into gradients.
  template <Group G>
  TESSERA_FN void differentiate(G const& group, int lane, std::int64_t first_row, std::int64_t first_column,
                                scratch_type& scratch) const {
    int const row = lane % layout::rows;
    int const first = lane / layout::rows * layout::part_columns;
    int const last = min(first + layout::part_columns, width(first_column));
    loss_row_gradient const factors = rows[first_row + row];
    std::int64_t const label =
        Targets::are_labels ? tokens.labels[first_row + row] - part.first - first_column : std::int64_t{-1};
    [[maybe_unused]] std::uint64_t const wanted = wanted_among(first_row + row, part.first + first_column + first);
    float const spread = smoothing / static_cast<float>(logits.classifier.rows());
    std::uint32_t for_hidden = 0;
    std::uint32_t for_classifier = 0;
    for (int column = first; column < last; ++column) {
      float const scaled = scratch.tile.logit(row, column);
      std::int64_t const entry = part.first + first_column + column;
      float const log_softmax = logits.mapped(scaled, first_row + row, entry) - factors.log_sum_exp;
      float const softmax = exp(log_softmax);
      float const apart = softmax - (column == label ? 1.0F - smoothing + spread : spread);
      float const information = softmax == 0.0F ? 0.0F : softmax * (log_softmax + factors.entropy);
      float by_logit = factors.by_loss * apart + factors.by_log_sum_exp * softmax - factors.by_entropy * information;
      if constexpr (!Targets::are_labels) {
        if ((wanted >> (column - first) & 1U) != 0) {
          by_logit -= (1.0F - smoothing) * targets.pull(tokens.order[first_row + row], entry);
          ++for_hidden;
          ++for_classifier;
        }
      }
      scratch.tile.logit(row, column) = by_logit * logits.slope(scaled, first_row + row, entry);
      for_hidden += absolute(apart) < thresholds.hidden ? 0U : 1U;
      for_classifier += absolute(apart) < thresholds.classifier ? 0U : 1U;
      if (column + 1 == last || (column + 1) % block_columns == 0) {
        int const block = row / block_rows * across + column / block_columns;
        group.atomic_add(scratch.for_hidden[block], for_hidden);
        group.atomic_add(scratch.for_classifier[block], for_classifier);
        for_hidden = for_classifier = 0;
      }
    }
  }

  /// Writes the gradients of kept blocks, with zeros for rows without a token. Blocks that no product reads are not
  /// written.
  TESSERA_FN void write_gradient(int lane, int height, std::int64_t first_row, std::int64_t first_column,
                                 scratch_type& scratch) const {
    for (int i = lane; i < layout::rows * layout::columns; i += lanes) {
      int const row = i / layout::columns;
      int const column = i % layout::columns;
      int const block = row / block_rows * across + column / block_columns;
      bool const is_kept = (scratch.for_hidden[block] | scratch.for_classifier[block]) != 0;
      if (is_kept && first_row + row < part.gradient.extent(0) && column < width(first_column)) {
        part.gradient(first_row + row, first_column + column) =
            store<value_type>(row < height ? scratch.tile.logit(row, column) : 0.0F);
      }
    }
  }

  TESSERA_FN void write_blocks(int lane, std::int64_t row_tile, std::int64_t column_tile,
                               scratch_type const& scratch) const {
    for (int block = lane; block < blocks; block += lanes) {
      std::int64_t const row = row_tile * (layout::rows / block_rows) + block / across;
      std::int64_t const column = column_tile * across + block % across;
      part.kept_for_hidden(row, column) = scratch.for_hidden[block] != 0 ? 1 : 0;
      part.kept_for_classifier(row, column) = scratch.for_classifier[block] != 0 ? 1 : 0;
    }
  }

  TESSERA_FN void write_column_sum(int lane, int height, std::int64_t row_tile, std::int64_t first_column,
                                   typename layout::scratch_type& tile) const {
    if (part.column_sums.data == nullptr || lane >= width(first_column)) {
      return;
    }
    float sum = 0.0F;
    for (int row = 0; row < height; ++row) {
      sum += tile.logit(row, lane);
    }
    part.column_sums(row_tile, first_column + lane) = sum;
  }
};

}  // namespace v0
}  // namespace tessera
