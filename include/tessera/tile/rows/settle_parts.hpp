// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `settle_parts`: merges parts of rows that lanes hold, such as what splits of the keys of a row know of it
/// (reduce/row_parts.hpp). The words for rows say who holds them: a part is a column. It gives each part the factor
/// that makes its sums relative to the row's reference, by which sums that lie elsewhere are multiplied.
///
///     using softmax = tessera::online_softmax<float>;
///     using part = tessera::row_part<softmax::state_type, 0>;
///     using parts = tessera::lane_rows<part, 1, 64, Group>;
///     using factors = tessera::lane_rows<float, 1, 64, Group>;
///     parts::sum_tile splits;
///     parts::each_with_row(group, splits, [&](int, int split, part& one) { read(split, one); });
///     factors::sum_tile by;
///     parts::row_values<part> whole;
///     tessera::settle_parts<parts, factors>(group, tessera::part_reducer<softmax, part>{}, splits, by, whole);
///
/// The same factors and wholes as merge_parts gives, but for the order in which lanes add, which depends on the words
/// for rows alone.
#pragma once

#include <tessera/concepts/reducer.hpp>
#include <tessera/concepts/tile_mma.hpp>
#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// All lanes reach this call. Merges the parts that lanes gathered of the same rows, each by itself, so that all of
/// them have the whole.
template <RowWords M, PartReducer R>
TESSERA_FN void merge_part_lanes(typename M::group_type const& group, R const& reducer,
                                 typename M::template row_values<typename R::state_type>& parts) {
  using part_type = typename R::state_type;
  using reach_reducer = typename R::reach_reducer;
  using sums_reducer = typename R::sums_reducer;
  typename M::template row_values<typename reach_reducer::state_type> reach;
  typename M::template row_values<typename sums_reducer::state_type> sums;
  M::each_row(
      group,
      [](int, part_type const& part, typename reach_reducer::state_type& of_row) {
        of_row = reach_reducer{}.identity();
        reach_reducer{}.push(of_row, part);
      },
      parts, reach);
  M::merge_lanes(group, reach_reducer{}, reach);
  M::each_row(
      group,
      [&](int, part_type& part, typename reach_reducer::state_type const& of_row,
          typename sums_reducer::state_type& of_part) {
        part_type whole = reducer.begin(of_row);
        reducer.add(whole, part, reducer.factor(part, whole));
        part = whole;
        of_part = reducer.sums_of(whole);
      },
      parts, reach, sums);
  M::merge_lanes(group, sums_reducer{}, sums);
  M::each_row(
      group,
      [&](int, part_type& part, typename sums_reducer::state_type const& of_row) { reducer.set_sums(part, of_row); },
      parts, sums);
}

/// All lanes reach this call. Parts: words for the rows of parts; Factors: for as many rows and columns of floats.
template <RowWords Parts, RowWords Factors, PartReducer R>
TESSERA_FN void settle_parts(typename Parts::group_type const& group, R const& reducer,
                             typename Parts::sum_tile const& parts, typename Factors::sum_tile& factors,
                             typename Parts::template row_values<typename R::state_type>& wholes) {
  using part_type = typename R::state_type;
  using reach_reducer = typename R::reach_reducer;
  using sums_reducer = typename R::sums_reducer;
  using reach_type = typename reach_reducer::state_type;
  using sums_type = typename sums_reducer::state_type;
  typename Parts::template row_values<reach_type> reach;
  Parts::fold_lanes(group, reach_reducer{}, parts, reach);
  Parts::merge_lanes(group, reach_reducer{}, reach);
  Parts::each_row(
      group, [&](int, reach_type const& of_row, part_type& whole) { whole = reducer.begin(of_row); }, reach, wholes);
  Parts::template each_with_both<Factors>(
      group, parts, factors,
      [&](int, int, part_type const& part, float& factor, part_type& whole) {
        factor = reducer.factor(part, whole);
        reducer.add(whole, part, factor);
      },
      wholes);
  typename Parts::template row_values<sums_type> sums;
  Parts::each_row(
      group, [&](int, sums_type& of_row, part_type const& whole) { of_row = reducer.sums_of(whole); }, sums, wholes);
  Parts::merge_lanes(group, sums_reducer{}, sums);
  Parts::each_row(
      group, [&](int, sums_type const& of_row, part_type& whole) { reducer.set_sums(whole, of_row); }, sums, wholes);
}

}  // namespace v0
}  // namespace tessera
