// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// TileMma: the block matrix product `sums += a * b` that a group of lanes carries out together.
///
/// The tiles are opaque: registers of a warp, shared memory of a block, or plain arrays on a CPU. A program fills them,
/// multiplies, and stores the sums, and does not know where an element is.
///
///     M::clear(group, sums);
///     for (int step = 0; step < depth; step += M::depth) {
///       M::load_a(group, a_tile, a + step, a_stride);            // M::rows x M::depth, row after row
///       M::load_b(group, b_tile, b + step * b_stride, b_stride); // M::depth x M::columns, row after row; or
///       M::load_b_transposed(group, b_tile, b + step, b_stride); // M::columns x M::depth, row after row
///       M::multiply(group, a_tile, b_tile, sums);
///     }
///     M::store(group, sums, c, c_stride);                         // M::rows x M::columns
///
/// Laws, checked by `tessera::testing::check_laws<M>()` where the group runs on the host:
///   1. multiply is the matrix product, exactly, for small whole numbers.
///   2. multiply adds to the sums that are there; clear makes them zero.
///   3. load_b_transposed gives the tile that load_b gives, from M::columns rows of M::depth elements.
///   4. load and store honour the stride and touch nothing between the rows.
///
/// RowWords: rows of sums that are worked on where a product left them, in registers: they are reduced, changed with a
/// value of each row, and become the left operand of the next product, without a trip through scratch. RowTile: a
/// TileMma with row words. Sums of wgmma have the same words (tile/cuda/sm_90/warpgroup_rows.cuh) beside a product that
/// goes on while its threads do something else, and so is no TileMma.
///
///     typename M::template row_values<float> largest;              // a value for each row of the tile
///     M::each_row(group, [](int, float& most) { most = -infinity; }, largest);
///     M::reduce_rows(group, maximum_reducer<float>{}, scores, largest);
///     M::each_with_row(group, scores, [](int, int, float& score, float most) { score -= most; }, largest);
///     multiply_sums<M, Next>(group, scores, values, totals);       // tile/multiply_sums.hpp
///
/// A row's value is held by each lane that has sums of the row, and it is the same in all of them, but where
/// each_with_row changes it: then a lane's value has what the lane's own sums did, and merge_lanes() makes one of them.
/// So a sum over many tiles is merged once, at the end. Tiles of as many rows and of one group have the same
/// row_values, so that a row's value of one product is used with another's sums.
///
/// Laws of both, checked by `tessera::testing::check_row_laws<M>()` where the group runs on the host:
///   1. each_row visits every row; what it does must depend on the row and its values alone, for a row may be visited
///      by several lanes. each_row_once visits every row once.
///   2. each_with_row visits every sum once, together with the values of its row. each_row_of_sums visits the same sums
///      as arrays, one for each row and lane that holds sums of it, in the order of columns.
///   3. reduce_rows merges into a row's state the state of the row's sums, pushed in an order that depends on the
///      tile and the reducer alone. A PairReducer may be given two neighbours of a row at a time, and one with
///      `any_order` any two, and several states to a row, which are merged (concepts/reducer.hpp).
///   4. States that each_with_row gathers from the reducer's identity are after merge_lanes those of whole rows.
///      fold_lanes gives states that a lane's own sums have so, whatever they were before: reduce_rows is fold_lanes,
///      merge_lanes, and a merge into each row's state.
///   5. each_with_both visits each sum once, with the sum of its place in another tile and the values of its row.
///      map_sums gives the other tile's place what its visit makes.
///   6. hide_from replaces the sums whose column is at least the row's value, hide_before_diagonal those whose column
///      is less than a number, the same for all rows, and the row's own. Values and numbers are from -2^30 to 2^30.
///   7. as_operand makes what load_a loads where sums were stored, rounded to the next product's type.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
template <class M>
concept TileMma =
    (requires { typename M::group_type; typename M::operand_type; typename M::sum_type; }
        || because<"a TileMma names who multiplies what: "
           "using group_type = ...; using operand_type = ...; using sum_type = ...;">) &&
    (requires { requires M::rows > 0; requires M::columns > 0; requires M::depth > 0; }
        || because<"a TileMma names its shape: static constexpr int rows, columns, depth;">) &&
    (requires {
       requires std::default_initializable<typename M::a_tile>;
       requires std::default_initializable<typename M::b_tile>;
       requires std::default_initializable<typename M::sum_tile>;
     } || because<"a TileMma names its tiles: "
                  "a_tile (rows x depth), b_tile (depth x columns) and sum_tile (rows x columns)">) &&
    (requires(typename M::group_type const& group, typename M::a_tile& a, typename M::b_tile& b,
              typename M::sum_tile& sums, typename M::operand_type const* from, typename M::sum_type* to,
              std::int64_t stride) {
       M::load_a(group, a, from, stride);
       M::load_b(group, b, from, stride);
       M::load_b_transposed(group, b, from, stride);
       M::clear(group, sums);
       M::store(group, sums, to, stride);
     } || because<"a TileMma moves tiles: static load_a(group, a_tile&, from, stride), "
                  "load_b(group, b_tile&, from, stride), load_b_transposed(group, b_tile&, from, stride), "
                  "clear(group, sum_tile&), "
                  "store(group, sum_tile const&, to, stride)">) &&
    (requires(typename M::group_type const& group, typename M::a_tile const& a, typename M::b_tile const& b,
              typename M::sum_tile& sums) {
       M::multiply(group, a, b, sums);
     } || because<"a TileMma has multiply(), which adds to the sums: "
                  "static void multiply(group, a_tile const&, b_tile const&, sum_tile& sums)">);
// clang-format on

namespace detail {

/// Functions and a Reducer that stand for a user's where RowTile is checked.
struct any_visit {
  template <class... Arguments>
  TESSERA_FN void operator()(Arguments&&...) const {}
};
template <class T>
struct any_sum {
  template <class... Arguments>
  TESSERA_FN T operator()(Arguments&&...) const {
    return T{};
  }
};
template <class T>
struct any_reducer {
  using state_type = T;
  using input_type = T;
  TESSERA_FN constexpr T identity() const { return T{}; }
  TESSERA_FN constexpr void push(T&, T) const {}
  TESSERA_FN constexpr void merge(T&, T) const {}
};

}  // namespace detail

// clang-format off
/// Rows of sums that are reduced, changed and multiplied in registers.
template <class M>
concept RowWords =
    (requires { typename M::group_type; typename M::sum_type; requires std::default_initializable<typename M::sum_tile>;
                requires M::rows > 0; requires M::columns > 0; }
        || because<"RowWords name their sums: using group_type, sum_type, sum_tile = ...; "
           "static constexpr int rows, columns;">) &&
    (requires { typename M::template row_values<float>; }
        || because<"RowWords name a value for each row: template <class T> struct row_values">) &&
    (requires(typename M::group_type const& group, typename M::sum_tile& sums,
              typename M::template row_values<float>& values) {
       M::each_row(group, detail::any_visit{}, values);
       M::each_row_once(group, detail::any_visit{}, values);
       M::each_with_row(group, sums, detail::any_visit{}, values);
       M::each_row_of_sums(group, sums, detail::any_visit{}, values);
     } || because<"RowWords visit rows and sums: static each_row(group, visit, row_values&...), "
                  "each_row_once(group, visit, row_values&...), "
                  "each_with_row(group, sum_tile&, visit, row_values&...), "
                  "each_row_of_sums(group, sum_tile const&, visit, row_values&...)">) &&
    (requires(typename M::group_type const& group, typename M::sum_tile& sums,
              typename M::template row_values<typename M::sum_type>& states) {
       M::fold_lanes(group, detail::any_reducer<typename M::sum_type>{}, sums, states);
       M::merge_lanes(group, detail::any_reducer<typename M::sum_type>{}, states);
       M::reduce_rows(group, detail::any_reducer<typename M::sum_type>{}, sums, states);
     } || because<"RowWords reduce rows: static void reduce_rows(group, reducer, sum_tile const&, "
                  "row_values<state_type>&), and its parts: fold_lanes, of the same arguments, "
                  "and merge_lanes(group, reducer, row_values<state_type>&)">) &&
    (requires(typename M::group_type const& group, typename M::sum_tile& sums,
              typename M::template row_values<int>& columns) {
       M::template each_with_both<M>(group, sums, sums, detail::any_visit{}, columns);
       M::template map_sums<M>(group, sums, sums, detail::any_sum<typename M::sum_type>{}, columns);
       M::hide_from(group, sums, typename M::sum_type{}, columns);
       M::hide_before_diagonal(group, sums, typename M::sum_type{}, 0);
     } || because<"RowWords visit and fill other tiles, and hide sums: "
                  "static void each_with_both<Other>(group, sum_tile const&, Other::sum_tile&, visit, row_values&...), "
                  "map_sums<To>(group, sum_tile const&, To::sum_tile&, visit, row_values&...), "
                  "hide_from(group, sum_tile&, hidden, row_values<int> const&), "
                  "hide_before_diagonal(group, sum_tile&, hidden, int)">);

/// A TileMma whose rows of sums are reduced, changed and multiplied in registers.
template <class M>
concept RowTile =
    (TileMma<M> || because<"a RowTile is a TileMma">) &&
    RowWords<M>;
// clang-format on

}  // namespace v0
}  // namespace tessera
