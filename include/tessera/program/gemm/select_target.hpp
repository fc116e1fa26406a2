// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `select_target`: the epilogue of gemm_tiles that keeps one sum of each row, that of the row's target column: the
/// logit of a loss's label, for example. All other sums are dropped in registers.
///
///     select_target<float, plain_sum> const epilogue{targets, logits, {}};
///     gemm_tiles<bfloat16, source, source, select_target<float, plain_sum>> program{{hidden}, {classifier}, epilogue};
///
/// Nothing is written for rows whose target is no column (-1, or a label that a loss ignores).
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/program/gemm/store_sums.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

template <class Output, class Map>
struct select_target {
  array_view<std::int64_t const> targets;  ///< a column for each row
  array_view<Output> selected;             ///< the mapped sum of each row's target
  Map map;

  template <class Sum>
  TESSERA_FN constexpr void operator()(std::int64_t row, std::int64_t column, Sum sum) const {
    if (targets[row] == column) {
      selected[row] = detail::stored_sum<Output>(map(sum, row, column));
    }
  }
};

}  // namespace v0
}  // namespace tessera
