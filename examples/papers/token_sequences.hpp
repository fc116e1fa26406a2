// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What losses of sequences have in common: which tokens count, and the sum of a list.
#pragma once

#include <cstdint>

#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/concepts/group.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera_examples {

using namespace tessera;

/// Sequences of `options.sequence` tokens, one after another. What does not count, as prompts and what fills a sequence
/// up, has the label `options.ignore_index`: such tokens take no time in linear_loss.
struct token_sequences {
  array_view<std::int32_t const> labels;  ///< a value for each token
  linear_loss_options options;            ///< those of the linear_loss, with loss_reduction::none

  TESSERA_FN constexpr std::int64_t count() const { return labels.size() / options.sequence; }
  TESSERA_FN constexpr bool has_label(std::int64_t token) const {
    return token % options.sequence + options.shift < options.sequence &&
           labels[token + options.shift] != options.ignore_index;
  }
  /// Sums of what part(token) gives, a float, for the tokens of a sequence that have a label.
  template <Group G, class Part>
  TESSERA_FN float sum_over(G const& group, std::int64_t sequence, Part const& part) const {
    per_lane<float, G> parts;
    for (int lane : group) {
      parts[lane] = 0.0F;
      for (std::int64_t t = lane; t < options.sequence; t += G::size) {
        std::int64_t const token = sequence * options.sequence + t;
        parts[lane] += has_label(token) ? part(token) : 0.0F;
      }
    }
    return sum(group, parts);
  }
};

/// The sum of a list. One group takes it, so that sums repeat bit for bit.
struct add_up {
  static constexpr int lanes = 256;
  struct scratch_type {};
  array_view<float const> parts;
  array_view<float> total;  ///< one element

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    per_lane<float, G> sums;
    for (int lane : group) {
      sums[lane] = 0.0F;
      for (std::int64_t i = lane; i < parts.size(); i += lanes) {
        sums[lane] += parts[i];
      }
    }
    float const of_all = sum(group, sums);
    for (int lane : group) {
      if (is_first(lane)) {
        total[0] = of_all;
      }
    }
  }
};

}  // namespace tessera_examples
