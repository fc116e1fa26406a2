// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `lent_gradient_memory`: memory of gradients that are still to be written, which a backward pass uses in place of its
/// workspace (gradients_apart.hpp), and how many entries of the vocabulary a part has there.
#pragma once

#include <cstdint>

#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/tuning/loss/part_costs.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// How the vocabulary is cut into parts.
struct loss_part_choice {
  std::int64_t entries;  ///< of a part
  bool is_apart;         ///< whether there is no room for lower halves of all tokens' gradients

  /// The choice as a number, as which remembered_search keeps it.
  [[nodiscard]] constexpr std::int64_t number() const { return entries * 2 + (is_apart ? 1 : 0); }
  /// The choice that has such a number.
  static constexpr loss_part_choice of_number(std::int64_t number) { return {number / 2, number % 2 != 0}; }
};

/// Memory in place of regions; null: the regions are used.
template <class T>
struct lent_gradient_memory {
  T* gradient = nullptr;             ///< the gradient of a part of the logits
  std::uint16_t* remains = nullptr;  ///< lower halves of sums of hidden gradients
  float* column_sums = nullptr;      ///< sums of a part's columns
};

/// Bytes, up to where the next region may begin.
constexpr std::int64_t whole_lines(std::int64_t bytes) {
  return divide_up(bytes, workspace_plan::alignment) * workspace_plan::alignment;
}

/// What lent memory must hold, in bytes. T: the type of gradients by logits.
template <class T>
struct lent_gradient_sizes {
  std::int64_t tokens;
  std::int64_t row_tiles;   ///< rows of sums of columns
  std::int64_t row_stride;  ///< of lower halves, in elements

  static constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  /// Lower halves of all tokens' sums.
  [[nodiscard]] constexpr std::int64_t remains() const {
    return whole_lines(tokens * row_stride * std::int64_t{sizeof(std::uint16_t)});
  }
  /// The gradient by the logits of so many entries.
  [[nodiscard]] constexpr std::int64_t gradient(std::int64_t entries) const {
    return whole_lines(tokens * entries * size);
  }
  /// The sums of its columns.
  [[nodiscard]] constexpr std::int64_t column_sums(std::int64_t entries) const {
    return whole_lines(row_tiles * entries * std::int64_t{sizeof(float)});
  }
  /// Both for an entry.
  [[nodiscard]] constexpr std::int64_t bytes_of_entry() const {
    return max(tokens * size + row_tiles * std::int64_t{sizeof(float)}, std::int64_t{1});
  }
  /// How many entries' gradient, with the sums of its columns, so many bytes hold wherever they begin, a multiple of
  /// `step`.
  [[nodiscard]] constexpr std::int64_t entries_within(std::int64_t bytes, std::int64_t step) const {
    return max(bytes - 3 * workspace_plan::alignment, std::int64_t{0}) / bytes_of_entry() / step * step;
  }
};

/// How many entries a part has where the last rows of the classifier's gradient are lent, which hold its own gradient
/// and lower halves: half of the rows, or where that is not enough all of them, but as much as makes 144 MiB of
/// gradient; 0: the rows do not suffice. On an H200 in turns, both passes of Gemma 2's and Llama 3's classifiers: with
/// 80 MiB 63.7 and 59.4 ms, with 112 63.3 and 58.7, with 144 62.1 and 58.6.
template <class T>
constexpr std::int64_t lent_gradient_entries(linear_loss_shape const& shape, std::int64_t row_stride, int tile_rows,
                                             std::int64_t step) {
  constexpr std::int64_t enough = std::int64_t{144} << 20;
  std::int64_t const row_bytes = shape.channels * lent_gradient_sizes<T>::size;
  lent_gradient_sizes<T> const sizes{shape.tokens, divide_up(shape.tokens, std::int64_t{tile_rows}), row_stride};
  auto const within = [&](std::int64_t rows) { return sizes.entries_within(rows * row_bytes - sizes.remains(), step); };
  std::int64_t const of_half = within(shape.vocabulary / 2);
  std::int64_t const found =
      min(min(of_half > 0 ? of_half : within(shape.vocabulary), sizes.entries_within(enough, step)),
          shape.vocabulary / step * step);
  return found > 0 ? loss_part_costs::of_two_launches().cheapest_entries({shape.tokens, shape.channels, found}, step)
                   : 0;
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
