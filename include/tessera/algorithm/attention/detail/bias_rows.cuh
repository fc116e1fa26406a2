// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Biases from memory as rows of one matrix, which TMA loads in tiles.
#pragma once

#include <cstdint>

#include <tessera/algorithm/attention/quantized_attention.cuh>
#include <tessera/exec/refusal.hpp>
#include <tessera/tile/cuda/sm_90/tensor_map.cuh>
#include <tessera/view/head_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// How many rows lie from one sequence (dimension 0) or head (1) of biases to the next.
template <class T>
std::int32_t rows_between(head_view<T const> const& biases, int dimension) {
  bool const is_alone = biases.extent(dimension) < 2 || biases.stride(dimension) == 0;
  return is_alone ? 0 : static_cast<std::int32_t>(biases.stride(dimension) / biases.stride(2));
}
/// Biases of all sequences and heads as rows of one matrix.
template <class T>
matrix_view<T const> rows_of_biases(head_view<T const> const& biases) {
  std::int64_t rows = biases.extent(2);
  for (int dimension = 0; dimension < 2; ++dimension) {
    rows += (biases.extent(dimension) - 1) * rows_between(biases, dimension);
  }
  return {biases.data, {rows, biases.extent(3)}, {biases.stride(2), biases.stride(3)}};
}
/// Why TMA cannot load biases, or none.
template <class T>
refusal refuses_biases(head_view<T const> const& biases) {
  for (int dimension = 0; dimension < 2; ++dimension) {
    bool const has_whole_rows =
        biases.extent(dimension) < 2 || biases.stride(dimension) == 0 ||
        (biases.stride(2) > 0 && biases.stride(dimension) > 0 && biases.stride(dimension) % biases.stride(2) == 0 &&
         biases.stride(dimension) / biases.stride(2) < most_rows);
    if (!has_whole_rows) {
      return refusal{"biases of sequences or heads are not whole rows apart"};
    }
  }
  return can_map(rows_of_biases(biases)) ? refusal{} : refusal{"TMA cannot load the biases"};
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
