// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `part_walk`: in which order a backward pass takes the parts of the vocabulary, and where it cuts the last one's
/// products so that the gradient of hidden states is whole early (hidden_progress.hpp).
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/loss/linear_loss_regions.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/loss/logit_gradient.hpp>
#include <tessera/tuning/loss/part_costs.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Parts of `entries`, from entry `begin` to the end of the vocabulary. Where somebody waits for the gradient of hidden
/// states, the part that has fewer is the first one and not the last, beside whose products others are to run.
struct part_walk {
  std::int64_t begin;
  std::int64_t entries;
  std::int64_t vocabulary;
  bool is_short_first;

  /// The parts of a call; `is_awaited`: whether somebody waits. Blocks of 128 entries stay whole.
  static part_walk of(std::int64_t begin, std::int64_t entries, std::int64_t vocabulary, bool is_awaited) {
    bool const suits = vocabulary - begin > entries && (vocabulary - begin) % entries % 128 == 0;
    return {begin, entries, vocabulary, is_awaited && suits && (vocabulary - begin) % entries > 0};
  }
  /// Whether the part that begins with `first` is a short one that comes first.
  [[nodiscard]] bool is_short(std::int64_t first) const { return is_short_first && first == begin; }
  /// One past the last entry of a part.
  [[nodiscard]] std::int64_t end_of(std::int64_t first) const {
    return is_short(first) ? begin + (vocabulary - begin) % entries : min(first + entries, vocabulary);
  }
  /// Where the first part of all `entries` begins, if there is one.
  [[nodiscard]] std::int64_t first_whole() const { return is_short_first ? end_of(begin) : begin; }
  /// The number of a part where the short one is counted as the last.
  [[nodiscard]] std::int64_t number_of(std::int64_t first) const {
    return is_short(first) ? (vocabulary - begin) / entries : (first - first_whole()) / entries;
  }
};

/// The first `count` entries of a part.
template <class T>
loss_gradient_part<T> first_entries_of(loss_gradient_part<T> part, std::int64_t count) {
  part.gradient.extents[1] = count;
  part.column_sums.extents[1] = min(part.column_sums.extents[1], count);
  return part;
}

/// The entries of a part from number `skipped` on, a multiple of 128: for products alone.
template <class T>
loss_gradient_part<T> later_entries_of(loss_gradient_part<T> part, std::int64_t skipped) {
  auto const without = [&](auto const& view, std::int64_t columns) {
    return std::remove_cvref_t<decltype(view)>{
        &view(0, columns), {view.extent(0), view.extent(1) - columns}, {view.stride(0), view.stride(1)}};
  };
  part.first += skipped;
  part.gradient = without(part.gradient, skipped);
  part.kept_for_hidden = without(part.kept_for_hidden, skipped / 128);
  part.kept_for_classifier = without(part.kept_for_classifier, skipped / 128);
  return part;
}

/// What is to be chosen of the products of a call's last part, of `width` entries.
template <class Call>
loss_products_beside_reduction products_beside_reduction(Call const& call, std::int64_t width,
                                                         std::int64_t channel_tiles, std::int64_t workers,
                                                         std::int64_t late_workers) {
  using products = loss_products_beside_reduction;
  constexpr auto element_bytes = static_cast<std::int64_t>(sizeof(typename Call::gradient_type));
  return {call.out.classifier.data != nullptr ? divide_up(width, std::int64_t{256}) : 0,
          divide_up(call.shape.tokens, std::int64_t{256}),
          channel_tiles,
          workers,
          late_workers,
          products::steps_of(call.shape.tokens),
          products::steps_of(width),
          products::reduction_of(call.shape.tokens * call.shape.channels * element_bytes)};
}

/// How many tokens' gradients are multiplied before the others: all where the classifier's are wanted, too.
template <class Call>
std::int64_t early_tokens(Call const& call, loss_products_beside_reduction const& products) {
  std::int64_t const step = max(divide_up(call.progress.step, std::int64_t{256}), std::int64_t{1});
  std::int64_t const tokens = call.shape.tokens;
  return products.classifier_panels > 0 ? tokens : min(products.early_hidden_panels(step) * 256, tokens);
}

/// `count` tokens of a part from number `first` on, a multiple of 256: for products alone.
template <class T>
loss_gradient_part<T> tokens_of(loss_gradient_part<T> part, std::int64_t first, std::int64_t count) {
  part.gradient = rows_of(part.gradient, first, count);
  part.kept_for_hidden = rows_of(part.kept_for_hidden, first / 128, part.kept_for_hidden.extent(0) - first / 128);
  return part;
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
