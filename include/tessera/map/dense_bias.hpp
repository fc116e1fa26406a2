// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `dense_bias`: a bias of attention's scores from memory, such as a relative position bias or the bias of pairs.
///
///     head_view<bfloat16 const> const biases{data, {batch, heads, queries, keys}, {0, 0, keys, 1}};  // heads share
///     attention_functions<dense_bias<bfloat16>> const functions{{biases}};
///     sage_attention2::forward(exec, inputs, options, outputs, space, functions);
///
/// Sequences or heads that share their biases have a stride of 0. Minus infinity hides a key. On sm_90a biases of 16
/// bits are loaded by TMA where rows lie next to each other and begin at multiples of 16 bytes, and those of sequences
/// and heads are a whole number of rows apart: what lies between is then read, too.
#pragma once

#include <cstdint>

#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/view/attention_shape.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// Adds biases(sequence, head, query, key). T: bfloat16, float16, float, or another Scalar.
template <Scalar T>
struct dense_bias {
  /// The type of biases in memory.
  using value_type = T;

  head_view<T const> biases;  ///< batch x query heads x queries x keys, where the executor runs

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("biases", biases);
  }
  /// The bias of a query and a key.
  TESSERA_FN float operator()(std::int64_t sequence, std::int64_t head, std::int64_t query, std::int64_t key) const {
    return static_cast<float>(load(biases(sequence, head, query, key)));
  }
  /// Throws shape_error where there are not as many biases as scores, value_error where they have no memory; both name
  /// `function`. Attention calls it for every bias that has such a function.
  void check_shape(char const* function, attention_shape const& s) const {
    std::int64_t const expected[4] = {s.batch, s.query_heads, s.queries, s.keys};
    for (int dimension = 0; dimension < 4; ++dimension) {
      check<shape_error>(biases.extent(dimension) == expected[dimension], function, ": dimension ", dimension,
                         " of the biases has ", biases.extent(dimension), " elements but needs ", expected[dimension]);
    }
    check_memory(function, "biases", biases);
  }
};

}  // namespace v0
}  // namespace tessera
