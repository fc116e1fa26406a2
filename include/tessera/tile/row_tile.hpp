// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `row_tile<T, shape<m, n, k>, Group>`: the gemm_tile whose lanes work on whole rows of sums (concepts/tile_mma.hpp).
///
///     using scores = row_tile<bfloat16, shape<64, 128, 16>, Group>;
///     using results = row_tile<bfloat16, shape<64, 64, 16>, Group>;      // as many rows: the same row_values
///     typename scores::template row_values<float> sum;
///     scores::each_row(group, [](int, float& s) { s = 0.0F; }, sum);
///     scores::reduce_rows(group, sum_reducer<float>{}, sums, sum);
///     scores::each_with_row(group, sums, [](int, int, float& s, float of_row) { s /= of_row; }, sum);
///     multiply_sums<scores, results>(group, sums, scratch.values, totals);
///
/// On a GPU warps divide the tile's rows alone: m is a multiple of 16 for each warp (of an eighth of the lanes for
/// float), or 8 for each, where there are no more rows, as of queries in decoding: then n is a multiple of 16, and T is
/// bfloat16, float16 or std::int8_t. A row is held by four lanes (eight for float, and where a warp has 8 rows), which
/// reduce it by as many exchanges as that has powers of two. The next product's type is float, bfloat16 or float16.
///
/// This header has plain arrays, for groups whose lanes are executed by one thread. tile/cuda/row_tile.cuh has the same
/// for groups of CUDA threads. nvcc includes it from here; under NVRTC it must be included by name.
#pragma once

#include <type_traits>

#include <tessera/concepts/reducer.hpp>
#include <tessera/concepts/tile_mma.hpp>
#include <tessera/config.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/tile/gemm_tile.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// Whether sums of M from column `First` on can be the left operand of Next.
template <class Next, class M, int First>
inline constexpr bool takes_sums = Next::rows == M::rows&& First % Next::depth == 0 &&
                                   First + Next::depth <= M::columns &&
                                   (std::is_same_v<typename Next::operand_type, float> ||
                                    is_16_bit_float<typename Next::operand_type>);

/// A value for each row of a tile whose lanes are executed by one thread.
template <class Value, int Rows>
struct plain_row_values {
  Value values[Rows];  ///< of each row
};

/// The words for rows of sums in plain arrays. Base: has group_type, sum_type, rows, columns, and sum_tile with
/// values[row][column].
template <class Base>
struct plain_row_words : Base {
  using Base::rows, Base::columns;
  using typename Base::group_type, typename Base::sum_tile, typename Base::sum_type;

  /// A value for each row.
  template <class Value>
  using row_values = plain_row_values<Value, Base::rows>;

  /// Calls visit(row, value...) for each row.
  template <class Visit, class... Values>
  TESSERA_FN static constexpr void each_row(group_type const&, Visit const& visit, Values&... values) {
    for (int row = 0; row < rows; ++row) {
      visit(row, values.values[row]...);
    }
  }
  /// The same, by one lane for each row.
  template <class Visit, class... Values>
  TESSERA_FN static constexpr void each_row_once(group_type const& group, Visit const& visit, Values&... values) {
    each_row(group, visit, values...);
  }
  /// Calls visit(row, column, sum, value...) for each sum, with values of its row.
  template <class Visit, class... Values>
  TESSERA_FN static constexpr void each_with_row(group_type const&, sum_tile& sums, Visit const& visit,
                                                 Values&... values) {
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        visit(row, column, sums.values[row][column], values.values[row]...);
      }
    }
  }
  /// Calls visit(row, own, value...) for each row, with the array of its sums that this lane holds: all of them.
  template <class Visit, class... Values>
  TESSERA_FN static constexpr void each_row_of_sums(group_type const&, sum_tile const& sums, Visit const& visit,
                                                    Values&... values) {
    for (int row = 0; row < rows; ++row) {
      visit(row, sums.values[row], values.values[row]...);
    }
  }
  /// Calls visit(row, column, sum, other, value...) for each sum and that in its place of another RowTile with as many
  /// rows and columns.
  template <class Other, class Visit, class... Values>
  TESSERA_FN static constexpr void each_with_both(group_type const&, sum_tile const& sums,
                                                  typename Other::sum_tile& others, Visit const& visit,
                                                  Values&... values) {
    static_assert(Other::rows == rows && Other::columns == columns,
                  "tessera: both tiles have as many rows and columns");
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        visit(row, column, sums.values[row][column], others.values[row][column], values.values[row]...);
      }
    }
  }
  /// Fills sums of another RowTile: to = visit(row, column, sum, value...).
  template <class To, class Visit, class... Values>
  TESSERA_FN static constexpr void map_sums(group_type const& group, sum_tile const& sums, typename To::sum_tile& to,
                                            Visit const& visit, Values&... values) {
    each_with_both<To>(
        group, sums, to,
        [&](int row, int column, auto const& sum, auto& into, auto&... of_row) {
          into = visit(row, column, sum, of_row...);
        },
        values...);
  }
  /// Replaces the sums of each row whose column is at least `ends`.
  TESSERA_FN static constexpr void hide_from(group_type const& group, sum_tile& sums, sum_type hidden,
                                             row_values<int> const& ends) {
    each_with_row(
        group, sums, [hidden](int, int column, sum_type& sum, int end) { sum = column < end ? sum : hidden; }, ends);
  }
  /// Replaces the sums whose column is less than `first` and the number of its row.
  TESSERA_FN static constexpr void hide_before_diagonal(group_type const& group, sum_tile& sums, sum_type hidden,
                                                        int first) {
    each_with_row(group, sums,
                  [hidden, first](int row, int column, sum_type& sum) { sum = column >= first + row ? sum : hidden; });
  }
  /// Makes each row's state that of the sums of the row that this lane holds, which is all of them.
  template <Reducer R>
  TESSERA_FN static constexpr void fold_lanes(group_type const&, R const& reducer, sum_tile const& sums,
                                              row_values<typename R::state_type>& states) {
    for (int row = 0; row < rows; row += folded_together<R>) {
      fold_rows(reducer, sums, row, &states.values[row]);
    }
  }
  /// Merges what the lanes of a row gathered each by itself, so that all of them have the row's state.
  template <Reducer R>
  TESSERA_FN static constexpr void merge_lanes(group_type const&, R const&, row_values<typename R::state_type>&) {}
  /// Merges into each row's state that of the row's sums.
  template <Reducer R>
  TESSERA_FN static constexpr void reduce_rows(group_type const&, R const& reducer, sum_tile const& sums,
                                               row_values<typename R::state_type>& states) {
    for (int row = 0; row < rows; row += folded_together<R>) {
      typename R::state_type found[folded_together<R>];
      fold_rows(reducer, sums, row, found);
      for (int i = 0; i < folded_together<R>; ++i) {
        reducer.merge(states.values[row + i], found[i]);
      }
    }
  }

 private:
  /// Rows whose numbers are pushed in turns, so that a processor need not wait for one's last addition. With one row
  /// after the other dense_attention's portable program takes 1.06 times as long.
  template <class R>
  static constexpr int folded_together = std::is_arithmetic_v<typename R::state_type>&& rows % 8 == 0 ? 8 : 1;

  /// Makes the states of rows from `row` on.
  template <class R>
  TESSERA_FN static constexpr void fold_rows(R const& reducer, sum_tile const& sums, int row,
                                             typename R::state_type* states) {
    typename R::state_type found[folded_together<R>]{};
    for (auto& state : found) {
      state = reducer.identity();
    }
    for (int column = 0; column < columns; ++column) {
      for (int i = 0; i < folded_together<R>; ++i) {
        reducer.push(found[i], sums.values[row + i][column]);
      }
    }
    for (int i = 0; i < folded_together<R>; ++i) {
      states[i] = found[i];
    }
  }
};

}  // namespace detail

template <class T, class Shape, class G = serial_group<1>>
struct row_tile : detail::plain_row_words<gemm_tile<T, Shape, G>> {
  using base = gemm_tile<T, Shape, G>;  ///< the product
  using base::rows, base::columns;
  using typename base::sum_tile, typename base::sum_type;

  /// Rounds the sums from column `First` on to the left operand of the next product.
  template <class Next, int First>
  TESSERA_FN static constexpr void as_operand(G const&, sum_tile const& sums, typename Next::a_tile& a) {
    static_assert(detail::takes_sums<Next, row_tile, First>,
                  "tessera: the next product has as many rows, its depth ends "
                  "within the columns, and its operands are float, bfloat16 or float16");
    for (int row = 0; row < rows; ++row) {
      for (int k = 0; k < Next::depth; ++k) {
        a.values[row][k] =
            Next::operand::widen(tessera::store<typename Next::operand_type>(sums.values[row][First + k]));
      }
    }
  }
};

static_assert(RowTile<row_tile<float, shape<2, 3, 4>>>);

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/tile/cuda/row_tile.cuh>
#endif
