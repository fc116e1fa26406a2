// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `fit_groups`: the parameters of groups of many neighbouring columns of a matrix in memory, a warp for each group;
/// and `fit_tensor`: the parameters of a whole tensor, from the ranges of its rows.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/quantizer.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/gemm/reduce_rows.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/row_chunks.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Fits the parameters of groups of neighbouring columns, a warp for each group.
template <Quantizer Q, Scalar T>
requires(Q::group != whole_tensor) struct fit_groups {
  static constexpr int lanes = lanes_in_a_warp;
  struct scratch_type {};

  Q quantizer;                                  ///< makes the codes
  matrix_view<T const> values;                  ///< rows x columns
  matrix_view<typename Q::params_type> params;  ///< rows x groups of a row

  TESSERA_FN constexpr std::int64_t groups() const { return params.extent(0) * params.extent(1); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    row_chunks<T const> const rows{values};
    std::int64_t const row = which / params.extent(1);
    std::int64_t const first = which % params.extent(1) * Q::group;
    std::int64_t const end = min(first + Q::group, values.extent(1));
    auto const reducer = quantizer.range();
    per_lane<range_state_t<Q>, G> ranges;
    for (int lane : group) {
      ranges[lane] = reducer.identity();
      for (std::int64_t column = first + lane * rows.size; column < end; column += lanes * rows.size) {
        auto const chunk = rows.load(row, column);
        for (int i = 0; i < rows.size; ++i) {
          if (column + i < end) {
            reducer.push(ranges[lane], static_cast<float>(load(chunk.values[i])));
          }
        }
      }
    }
    auto const range = reduce(group, ranges, detail::merging<range_reducer_t<Q>>{reducer});
    for (int lane : group) {
      if (is_first(lane)) {
        params(row, which % params.extent(1)) = quantizer.fit(range);
      }
    }
  }
};

/// Fits the parameters of a whole tensor to the ranges of its rows, or of parts of them. One warp.
template <Quantizer Q>
struct fit_tensor {
  static constexpr int lanes = lanes_in_a_warp;
  struct scratch_type {};

  Q quantizer;                                  ///< makes the codes
  array_view<range_state_t<Q> const> ranges;    ///< the ranges of all parts
  matrix_view<typename Q::params_type> params;  ///< 1 x 1

  TESSERA_FN constexpr std::int64_t groups() const { return 1; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    auto const reducer = quantizer.range();
    per_lane<range_state_t<Q>, G> merged;
    for (int lane : group) {
      merged[lane] = reducer.identity();
      for (std::int64_t i = lane; i < ranges.size(); i += lanes) {
        reducer.merge(merged[lane], ranges[i]);
      }
    }
    auto const range = reduce(group, merged, detail::merging<range_reducer_t<Q>>{reducer});
    for (int lane : group) {
      if (is_first(lane)) {
        params(0, 0) = quantizer.fit(range);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
