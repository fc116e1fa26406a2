// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `linear_bias`: a bias of attention's scores that falls with the distance between query and key, by a slope for each
/// head: ALiBi (Press, Smith, Lewis: "Train Short, Test Long", arXiv 2108.12409). Query i and key j have the bias
/// slope * (j - i), which is 0 at a query's own number.
///
///     attention_functions<linear_bias> const functions{{slopes}};          // a float for each query head
///     sage_attention2::forward(exec, inputs, options, outputs, space, functions);
///
/// Here i and j are numbers within their sequence. Where there are fewer queries than keys, a query's own key has a
/// greater number than the query. That adds the same to all scores of a query, which changes its log-sum-exp, and its
/// result only where there is a sink.
#pragma once

#include <concepts>
#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/attention_shape.hpp>

namespace tessera {
inline namespace v0 {

/// Adds slopes[head] * (key - query).
struct linear_bias {
  static constexpr bool is_linear = true;  ///< see LinearBias
  array_view<float const> slopes;          ///< a slope for each query head, where the executor runs

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("slopes of biases", slopes);
  }
  /// The slope of a head.
  TESSERA_FN float slope(std::int64_t /*sequence*/, std::int64_t head) const { return slopes[head]; }
  /// The bias of a query and a key.
  TESSERA_FN float operator()(std::int64_t sequence, std::int64_t head, std::int64_t query, std::int64_t key) const {
    return slope(sequence, head) * static_cast<float>(key - query);
  }
  /// Throws shape_error where there is not a slope for each head, value_error where they have no memory; both name
  /// `function`. Attention calls it for every bias that has such a function.
  void check_shape(char const* function, attention_shape const& s) const {
    check<shape_error>(slopes.size() == s.query_heads, function, ": there are ", slopes.size(),
                       " slopes of biases for ", s.query_heads, " query heads");
    check_memory(function, "slopes of biases", slopes);
  }
};

/// A bias that says that it is slope(sequence, head) * (key - query), so that programs need not call it for each score.
template <class Bias>
concept LinearBias = requires(Bias const& bias, std::int64_t number) {
  requires Bias::is_linear;
  { bias.slope(number, number) } -> std::convertible_to<float>;
};

static_assert(LinearBias<linear_bias>);

}  // namespace v0
}  // namespace tessera
