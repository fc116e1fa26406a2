// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention_score`: measures the accuracy of quantized attention on a layer, with a user's own data. `layers_in_need`
/// tells which layers should have more bits than others.
///
///     auto const plan = attention_score::plan_measure(exec, shape);    // the shape of attention
///     attention_score::measure(exec, in_four_bits, in_eight_bits, score, tessera::workspace(plan, memory));
///     ...                                                            // one score for each layer, then
///     std::vector<bool> const eight = layers_in_need(scores, 0.95F, 0.1F);
///
/// The score is cosine * (1 - relative L1 error) of all results together, the measure by which the first version of
/// SageAttention2's paper (arXiv 2411.10958v1) chooses between 4 and 8 bits. It is 1 for equal results and not above.
/// Sums are in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

#include <tessera/concepts/executor.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/attention/compare_heads.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

struct attention_score {
  /// The workspace of measure() for results of attention of this shape: batch x query heads x queries x channels.
  template <Executor Exec>
  static workspace_plan plan_measure(Exec const&, attention_shape const& shape) {
    return regions(shape.batch, shape.query_heads, shape.queries, shape.channels_of_values()).plan;
  }

  /// Enqueues the score of `found`, where `expected` is the better result, into the one element of `score`. The score
  /// is NaN if either has a NaN, or if one is zeros and the other is not. Throws shape_error.
  template <Executor Exec, class T, class Better>
  static void measure(Exec const& exec, head_view<T> found, head_view<Better> expected, array_view<float> score,
                      workspace const& space) {
    for (int dimension = 0; dimension < 4; ++dimension) {
      check<shape_error>(found.extent(dimension) == expected.extent(dimension), where, ": dimension ", dimension,
                         " of what was found has ", found.extent(dimension), " elements but that of what was expected ",
                         expected.extent(dimension));
    }
    check_memory(where, "heads that were found", found);
    check_memory(where, "heads that were expected", expected);
    check_memory(where, "scores", score);
    check<shape_error>(score.size() == 1, where, ": the score has ", score.size(), " elements but needs 1");
    regions const layout(found.extent(0), found.extent(1), found.extent(2), found.extent(3));
    space.check_room(where, layout.plan.bytes(), found.extent(0), " x ", found.extent(1), " heads of ", found.extent(2),
                     " tokens of ", found.extent(3), " channels");
    check_reach(exec, where, "heads that were found", found, "heads that were expected", expected, "scores", score,
                "bytes of the workspace", space);
    auto const sums = space[layout.sums];
    compare_heads<std::remove_const_t<T>, std::remove_const_t<Better>> const compare{found, expected, sums};
    exec.run(compare, compare.groups());
    exec.run(finish_comparison{sums, score}, 1);
  }

 private:
  static constexpr char const* where = "attention_score.measure";
  struct regions {
    workspace_plan plan;
    region<comparison_sums> sums;
    regions(std::int64_t batch, std::int64_t heads, std::int64_t tokens, std::int64_t channels)
        : plan(where),
          sums(plan.add<comparison_sums>("sums of elements",
                                         divide_up(checked_multiply(where, checked_multiply(where, batch, heads),
                                                                    checked_multiply(where, tokens, channels)),
                                                   compare_heads<float, float>::elements))) {}
  };
};

/// Tells for each score whether its layer should have more bits: if it is below the threshold, or NaN, or among the
/// lowest `fraction` of all scores (of equal ones the earlier come first). `fraction` of the number of scores is
/// rounded up. Throws value_error for a threshold that is NaN and a fraction that is not from 0 to 1.
inline std::vector<bool> layers_in_need(std::vector<float> const& scores, float threshold, float fraction = 0.0F) {
  check<value_error>(!is_nan(threshold), "layers_in_need: the threshold is ", threshold, " but must be a number");
  check<value_error>(fraction >= 0 && fraction <= 1, "layers_in_need: the fraction is ", fraction,
                     " but must be from 0 to 1");
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  auto const key = [&scores](std::size_t i) { return std::isnan(scores[i]) ? -2.0F : scores[i]; };
  std::stable_sort(order.begin(), order.end(), [&key](std::size_t a, std::size_t b) { return key(a) < key(b); });
  double const lowest = std::ceil(static_cast<double>(fraction) * static_cast<double>(scores.size()));
  std::vector<bool> needs(scores.size());
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    needs[order[rank]] = static_cast<double>(rank) < lowest || !(scores[order[rank]] >= threshold);
  }
  return needs;
}

}  // namespace v0
}  // namespace tessera
