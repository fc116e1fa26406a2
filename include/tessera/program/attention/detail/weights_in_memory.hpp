// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `weights_in_memory`: the weights of attention by row words where one thread has them in memory. They are multiplied
/// by e4m3 codes of values where they lie, if the processor has vectors for it (tile/serial/add_value_codes.hpp), and
/// otherwise become operands.
#pragma once

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/tile/multiply_sums.hpp>
#include <tessera/tile/serial/add_value_codes.hpp>
#include <tessera/tile/serial/vectors.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Weights, Results: the row tiles of weights and of results.
template <class Weights, class Results>
struct weights_in_memory {
  typename Weights::sum_tile const* weights;    ///< the weights
  operands_of_sums<Weights, Results> operands;  ///< the same as operands, where there are no vectors

  /// Takes weights, which stay where they are while they are multiplied.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // host only, called from code for both sides
#endif
  TESSERA_FN void make(typename Weights::group_type const& group, typename Weights::sum_tile const& sums) {
    weights = &sums;
    if (!has_vectors()) {
      operands.make(group, sums);
    }
  }
  /// Adds the products with codes of values, channels x slots, to the first `count` tiles of sums. Without vectors it
  /// returns false and does nothing.
  template <class Codes, int Tiles>
  TESSERA_FN bool add_values(Codes const& codes, int count, typename Results::sum_tile (&totals)[Tiles]) const {
    for (int tile = 0; tile < min(count, Tiles); ++tile) {
      auto const* const from = &codes(tile * Results::columns, 0);
      if (!add_value_codes(weights->values, from, Codes::stride, totals[tile].values)) {
        return false;
      }
    }
    return true;
  }
};

/// The operands that multiply_sums_transposed() takes.
template <class Operands>
TESSERA_FN constexpr Operands const& operands_in(Operands const& operands) {
  return operands;
}
template <class Weights, class Results>
TESSERA_FN constexpr operands_of_sums<Weights, Results> const& operands_in(
    weights_in_memory<Weights, Results> const& weights) {
  return weights.operands;
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
