// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `loss_part_schedule`: in which order loss_gradient_parts (gradient_parts.cuh) takes the tiles of all parts of the
/// vocabulary, and for how many tiles before it each one waits.
///
/// Of each part the tiles of the gradient by the logits come first, row by row, then those of hidden states, row by
/// row, and then those of the classifier. All parts have the same memory for the gradient. So a tile of hidden states
/// waits for its row of the gradient, one of the classifier for the whole of it, and a tile of the next part's gradient
/// is written when all of the classifier have been multiplied, and those of hidden states in its row. Nothing waits for
/// a tile that comes later. With Gemma's 2304 channels, in parts of 2048 tokens and 2048 entries, 78 tiles or more lie
/// between a row of the gradient and what waits for it, while an H200 has 66 at work.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>

namespace tessera {
inline namespace v0 {

/// What a work item makes.
enum class loss_part_work : std::int32_t {
  logits,      ///< a tile of 256 tokens x 192 entries of the gradient by the logits
  hidden,      ///< a tile of 256 tokens x 192 channels of the gradient of hidden states
  classifier,  ///< a tile of 256 entries x 192 channels of the gradient of the classifier
  none         ///< nothing: all items are taken
};

/// A tile, in the four words that thread blocks of a cluster send each other.
struct alignas(16) loss_part_item {
  std::int32_t steps;          ///< of 64 of the tile's depth
  std::int32_t work_and_part;  ///< the work, and 4 * the number of the part
  std::int32_t panel;          ///< of 256 rows
  std::int32_t tile;           ///< of 192 columns

  /// What it makes.
  [[nodiscard]] TESSERA_FN constexpr loss_part_work work() const {
    return static_cast<loss_part_work>(work_and_part % 4);
  }
  /// The number of its part.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t part() const { return work_and_part / 4; }
};

/// All work items of some tokens. Extents are below 2^31, those of a part multiples of 256 entries.
struct loss_part_schedule {
  static constexpr std::int32_t rows = 256;     ///< rows of a tile
  static constexpr std::int32_t columns = 192;  ///< columns of a tile
  static constexpr std::int32_t depth = 64;     ///< of a step
  /// Warps that count when a tile is done: those of a warpgroup in each of two thread blocks.
  static constexpr std::int32_t warps_of_tile = 8;

  std::int32_t vocabulary;  ///< entries of all parts
  std::int32_t entries;     ///< of a part; the last one may have fewer
  std::int32_t tokens;      ///< those that parts have in common
  std::int32_t channels;    ///< of hidden states and the classifier
  bool has_hidden;          ///< whether the gradient of hidden states is wanted
  bool has_classifier;      ///< whether that of the classifier is

  /// How many parts there are.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t parts() const { return divide_up(vocabulary, entries); }
  /// Panels of tokens, which are rows of tiles of the gradient by the logits.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t token_panels() const { return divide_up(tokens, rows); }
  /// How many items there are.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t count() const {
    std::int32_t const last = parts() - 1;
    return last * items_of(entries) + items_of(entries_of(last));
  }

  /// Item number `index`; none, if there are not so many.
  [[nodiscard]] TESSERA_FN constexpr loss_part_item at(std::int32_t index) const {
    std::int32_t const of_part = items_of(entries);
    std::int32_t const part = min(index / of_part, parts() - 1);
    std::int32_t const some = entries_of(part);
    std::int32_t const of_channels = divide_up(channels, columns);
    std::int32_t left = index - part * of_part;
    std::int32_t const across = divide_up(some, columns);
    if (left < token_panels() * across) {
      return make(loss_part_work::logits, part, channels, left, across);
    }
    left -= token_panels() * across;
    std::int32_t const of_hidden = has_hidden ? token_panels() * of_channels : 0;
    if (left < of_hidden) {
      return make(loss_part_work::hidden, part, some, left, of_channels);
    }
    left -= of_hidden;
    if (has_classifier && left < divide_up(some, rows) * of_channels) {
      return make(loss_part_work::classifier, part, tokens, left, of_channels);
    }
    return {0, static_cast<std::int32_t>(loss_part_work::none), 0, 0};
  }

  /// How many tiles of a row of the gradient by the logits have been made when a part is.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t made_of_row(std::int32_t part) const {
    return part * divide_up(entries, columns) + divide_up(entries_of(part), columns);
  }
  /// How many of all rows.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t made(std::int32_t part) const {
    return token_panels() * made_of_row(part);
  }
  /// How many tiles of a row of hidden states are done when all parts before one are.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t hidden_before(std::int32_t part) const {
    return has_hidden ? part * divide_up(channels, columns) : 0;
  }
  /// How many tiles of the classifier.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t classifier_before(std::int32_t part) const {
    return has_classifier ? part * (divide_up(entries, rows) * divide_up(channels, columns)) : 0;
  }
  /// How many entries a part has.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t entries_of(std::int32_t part) const {
    return min(entries, vocabulary - part * entries);
  }

 private:
  [[nodiscard]] TESSERA_FN constexpr std::int32_t items_of(std::int32_t some) const {
    std::int32_t const of_channels = divide_up(channels, columns);
    return token_panels() * (divide_up(some, columns) + (has_hidden ? of_channels : 0)) +
           (has_classifier ? divide_up(some, rows) * of_channels : 0);
  }
  [[nodiscard]] static TESSERA_FN constexpr loss_part_item make(loss_part_work work, std::int32_t part,
                                                                std::int32_t summed, std::int32_t index,
                                                                std::int32_t across) {
    return {divide_up(summed, depth), static_cast<std::int32_t>(work) + 4 * part, index / across, index % across};
  }
};

/// The counters of a launch of loss_gradient_parts: all are zero before it.
struct loss_part_counters {
  static constexpr std::int32_t common = 3;  ///< counters beside those of rows
  /// How many words there are for so many panels of tokens.
  [[nodiscard]] static TESSERA_FN constexpr std::int64_t size(std::int64_t token_panels) {
    return common + 2 * token_panels;
  }

  std::int32_t* words;        ///< size() counters
  std::int32_t token_panels;  ///< panels of 256 tokens

  /// How many items were taken.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t* next_item() const { return words; }
  /// Warps that have made tiles of the gradient by the logits.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t* made() const { return words + 1; }
  /// Warps that have multiplied tiles of the classifier.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t* classifier() const { return words + 2; }
  /// Warps that have made tiles of a row of the gradient by the logits.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t* made_of_row(std::int32_t panel) const {
    return words + common + panel;
  }
  /// Warps that have added tiles of a row of hidden states.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t* hidden(std::int32_t panel) const {
    return words + common + token_panels + panel;
  }
};

}  // namespace v0
}  // namespace tessera
