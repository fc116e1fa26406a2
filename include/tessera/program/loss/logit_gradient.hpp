// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `loss_gradient_tiles`: the gradient of a loss by the sums that become logits, for a part of the vocabulary, and
/// which blocks of it count: the portable program at the heart of linear_loss's backward pass.
///
/// With S the softmax, q the wanted distribution, H the entropy, and for each token factors g, h, k
/// (loss_row_gradient):
///
///     by the logit:  g (S - q) + h S - k S (log S + H)           by the sum:  that * the logit's slope
///
/// all in fp32, from logits that are made anew; the result is rounded once, to the type of the operands. A block is
/// left out of a gradient where |S - q| < its threshold for all elements: the paper's rule, before any factor. A NaN
/// keeps its block. Sums over columns, for the bias, leave out nothing.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/loss/logits.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// What a row's gradient depends on.
struct loss_row_gradient {
  float log_sum_exp;     ///< of the row, natural
  float entropy;         ///< of the row, in nats
  float by_loss;         ///< g
  float by_log_sum_exp;  ///< h
  float by_entropy;      ///< k
};

/// Which blocks are left out of the gradients of hidden states and of the classifier; 0: none.
struct gradient_thresholds {
  float hidden;      ///< in units of probability
  float classifier;  ///< in units of probability
};

/// Of one part of the vocabulary.
template <class T>
struct loss_gradient_part {
  std::int64_t first;                             ///< entry of the vocabulary
  matrix_view<T> gradient;                        ///< tokens x entries
  matrix_view<std::uint8_t> kept_for_hidden;      ///< a value for each block
  matrix_view<std::uint8_t> kept_for_classifier;  ///< a value for each block
  matrix_view<float> column_sums;                 ///< rows of tiles x entries, or null
};

/// Filter: has the extents of a block, which divide those of the tile: gradient_filter, for one.
template <class Tile, class Filter>
struct loss_gradient_tiles {
  using layout = loss_tile<Tile>;
  using value_type = typename layout::value_type;
  static constexpr int lanes = layout::lanes;
  static constexpr int block_rows = min(Filter::rows, layout::rows);           ///< of a block of the filter
  static constexpr int block_columns = min(Filter::columns, layout::columns);  ///< of a block of the filter
  static constexpr int across = layout::columns / block_columns;               ///< blocks beside each other in a tile
  static constexpr int blocks = layout::rows / block_rows * across;            ///< of a tile
  static_assert(layout::rows % block_rows == 0 && layout::columns % block_columns == 0 && blocks <= 1024,
                "tessera: the blocks of a gradient_filter divide the tile of the loss, into at most 1024 of them");

  struct scratch_type {
    typename layout::scratch_type tile;    ///< for logits
    std::uint32_t for_hidden[blocks];      ///< elements that do not stay below thresholds.hidden
    std::uint32_t for_classifier[blocks];  ///< elements that do not stay below thresholds.classifier
  };

  loss_logits<Tile> logits;
  loss_token_list tokens;
  array_view<loss_row_gradient const> rows;  ///< what each row of the list depends on
  float smoothing;
  gradient_thresholds thresholds;
  loss_gradient_part<value_type> part;  ///< where gradients go

  /// Tiles of the part.
  TESSERA_FN constexpr std::int64_t column_tiles() const {
    return divide_up(part.gradient.extent(1), std::int64_t{layout::columns});
  }
  TESSERA_FN constexpr std::int64_t groups() const { return logits.row_tiles() * column_tiles(); }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const row_tile = which % logits.row_tiles();
    std::int64_t const column_tile = which / logits.row_tiles();
    std::int64_t const first_row = row_tile * layout::rows;
    auto const height =
        static_cast<int>(clamp(tokens.count[0] - first_row, std::int64_t{0}, std::int64_t{layout::rows}));
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

  /// A lane's part of a row: logits become gradients.
  template <class Group>
  TESSERA_FN void differentiate(Group const& group, int lane, std::int64_t first_row, std::int64_t first_column,
                                scratch_type& scratch) const {
    int const row = lane % layout::rows;
    int const first = lane / layout::rows * layout::part_columns;
    int const last = min(first + layout::part_columns, width(first_column));
    loss_row_gradient const factors = rows[first_row + row];
    std::int64_t const label = tokens.labels[first_row + row] - part.first - first_column;
    float const spread = smoothing / static_cast<float>(logits.classifier.rows());
    std::uint32_t for_hidden = 0;
    std::uint32_t for_classifier = 0;
    for (int column = first; column < last; ++column) {
      float const logit = scratch.tile.logit(row, column);
      float const log_softmax = logit - factors.log_sum_exp;
      float const softmax = exp(log_softmax);
      float const apart = softmax - (column == label ? 1.0F - smoothing + spread : spread);
      float const information = softmax == 0.0F ? 0.0F : softmax * (log_softmax + factors.entropy);
      float const by_logit =
          factors.by_loss * apart + factors.by_log_sum_exp * softmax - factors.by_entropy * information;
      scratch.tile.logit(row, column) = by_logit * logits.map.slope(logit);
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

  /// Zeros for rows without a token; nothing where no gradient will look.
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
