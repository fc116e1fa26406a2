// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The words for rows of sums in registers (RowWords, concepts/tile_mma.hpp), made of where a lane's sums lie: of
/// mma.sync and of multiply-adds for tile/cuda/row_tile.cuh, of wgmma for tile/cuda/sm_90/warpgroup_rows.cuh.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/reducer.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>

namespace tessera {
inline namespace v0 {
namespace detail {

/// A value for each row that a lane holds, `Parts` in each of `Tiles` tiles.
template <class Value, int Tiles, int Parts>
struct values_of_rows {
  Value values[Tiles][Parts];
};

/// Merges the states of `Lanes` lanes, each `Apart` from the next. All of them end with the same bits, because the
/// lower lane's state is always the first where that makes a difference.
template <int Lanes, int Apart, class R>
__device__ __forceinline__ void merge_neighbours(R const& reducer, int lane, typename R::state_type& state) {
#pragma unroll
  for (int distance = Apart; distance < Lanes * Apart; distance *= 2) {
    typename R::state_type other = move_words(state, across{distance});
    if (!takes_any_order<R> && (lane & distance) != 0) {
      reducer.merge(other, state);
      state = other;
    } else {
      reducer.merge(state, other);
    }
  }
}

/// What fragments of tensor cores have in common: in each tile of 16 rows by 8 columns, register 2 h + i of a lane is
/// row lane / 4 + 8 h and column 2 (lane % 4) + i. Two neighbouring tiles are, rounded to 16 bits, the left operand of
/// sixteen columns.
struct fragment_lanes {
  static constexpr int holders = 4;        ///< lanes that hold a row
  static constexpr int holders_apart = 1;  ///< lanes from one of them to the next
  static constexpr int parts = 2;          ///< rows that a lane holds of a tile
  static constexpr bool has_pairs = true;  ///< whether sums 2 i and 2 i + 1 of a row are neighbours

  /// The first row that a lane holds of a tile.
  __device__ __forceinline__ static int row_in_tile(int lane) { return lane % lanes_in_a_warp / holders; }
  /// The first column that a lane holds.
  __device__ __forceinline__ static int first_column(int lane) { return lane % holders * 2; }
  /// How much further sum i of a row is.
  __device__ __forceinline__ static constexpr int further(int i) { return i / 2 * 8 + i % 2; }
};

/// Lanes: where sums lie. It has holders, holders_apart, parts, has_pairs, first_column() and further() as
/// fragment_lanes has them; group_type, sum_tile, and the extents rows and columns; how many `tiles` of rows a lane
/// has, and in `held` how many sums of each row; first_row(group), how many rows further others are in rows_to(tile,
/// part), and sum(sums, tile, part, i).
template <class Lanes>
struct row_words {
  using sums_of_rows = typename Lanes::sum_tile;  ///< the sums
  using group_of_rows = typename Lanes::group_type;
  static constexpr int holders = Lanes::holders;  ///< threads that hold a row
  /// A value for each row.
  template <class Value>
  using row_values = values_of_rows<Value, Lanes::tiles, Lanes::parts>;

  /// Calls visit(row, value...) for each row that this thread holds.
  template <class Visit, class... Values>
  __device__ __forceinline__ static void each_row(group_of_rows const& group, Visit const& visit, Values&... values) {
#pragma unroll
    for (int tile = 0; tile < Lanes::tiles; ++tile) {
#pragma unroll
      for (int part = 0; part < Lanes::parts; ++part) {
        visit(row(group, tile, part), values.values[tile][part]...);
      }
    }
  }
  /// The same, by one thread for each row.
  template <class Visit, class... Values>
  __device__ __forceinline__ static void each_row_once(group_of_rows const& group, Visit const& visit,
                                                       Values&... values) {
    if (group.lane / Lanes::holders_apart % holders == 0) {
      each_row(group, visit, values...);
    }
  }
  /// Calls visit(row, column, sum, value...) for each sum that this thread holds, with values of its row.
  template <class Visit, class... Values>
  __device__ __forceinline__ static void each_with_row(group_of_rows const& group, sums_of_rows& sums,
                                                       Visit const& visit, Values&... values) {
    each_place([&](int tile, int part, int i) {
      visit(row(group, tile, part), column(group, i), Lanes::sum(sums, tile, part, i), values.values[tile][part]...);
    });
  }
  /// Calls visit(row, own, value...) for each row that this thread holds, with the array of its sums of the row, in the
  /// order of columns.
  template <class Visit, class... Values>
  __device__ __forceinline__ static void each_row_of_sums(group_of_rows const& group, sums_of_rows const& sums,
                                                          Visit const& visit, Values&... values) {
#pragma unroll
    for (int tile = 0; tile < Lanes::tiles; ++tile) {
#pragma unroll
      for (int part = 0; part < Lanes::parts; ++part) {
        std::remove_cvref_t<decltype(Lanes::sum(sums, 0, 0, 0))> own[Lanes::held];
#pragma unroll
        for (int i = 0; i < Lanes::held; ++i) {
          own[i] = Lanes::sum(sums, tile, part, i);
        }
        auto const& held = own;
        visit(row(group, tile, part), held, values.values[tile][part]...);
      }
    }
  }
  /// Calls visit(row, column, sum, other, value...) for each sum and that in its place of other RowWords with as many
  /// rows and columns.
  template <class Other, class Visit, class... Values>
  __device__ __forceinline__ static void each_with_both(group_of_rows const& group, sums_of_rows const& sums,
                                                        typename Other::sum_tile& others, Visit const& visit,
                                                        Values&... values) {
    static_assert(Other::rows == Lanes::rows && Other::columns == Lanes::columns && Other::holders == holders,
                  "tessera: both tiles have as many rows and columns, and both or neither are of float");
    each_place([&](int tile, int part, int i) {
      visit(row(group, tile, part), column(group, i), Lanes::sum(sums, tile, part, i),
            Lanes::sum(others, tile, part, i), values.values[tile][part]...);
    });
  }
  /// Fills sums of other RowWords: to = visit(row, column, sum, value...).
  template <class To, class Visit, class... Values>
  __device__ __forceinline__ static void map_sums(group_of_rows const& group, sums_of_rows const& sums,
                                                  typename To::sum_tile& to, Visit const& visit, Values&... values) {
    each_with_both<To>(
        group, sums, to,
        [&](int row, int column, auto const& sum, auto& into, auto&... of_row) {
          into = visit(row, column, sum, of_row...);
        },
        values...);
  }
  /// Replaces the sums of each row whose column is at least `ends`. The lane's first column is subtracted once for a
  /// row, so that each sum takes a comparison with a constant.
  template <class Sum>
  __device__ __forceinline__ static void hide_from(group_of_rows const& group, sums_of_rows& sums, Sum hidden,
                                                   row_values<int> const& ends) {
    each_place([&](int tile, int part, int i) {
      auto& sum = Lanes::sum(sums, tile, part, i);
      sum = Lanes::further(i) < ends.values[tile][part] - Lanes::first_column(group.lane) ? sum : hidden;
    });
  }
  /// Replaces the sums whose column is less than `first` and the number of its row. A comparison is for sums of both
  /// rows of a lane, as many columns apart as the rows are.
  template <class Sum>
  __device__ __forceinline__ static void hide_before_diagonal(group_of_rows const& group, sums_of_rows& sums,
                                                              Sum hidden, int first) {
    each_place([&](int tile, int part, int i) {
      auto& sum = Lanes::sum(sums, tile, part, i);
      int const own = first + Lanes::first_row(group) - Lanes::first_column(group.lane);
      sum = Lanes::further(i) - Lanes::rows_to(tile, part) >= own ? sum : hidden;
    });
  }
  /// Makes each row's state that of the sums of the row that this thread holds.
  template <Reducer R>
  __device__ __forceinline__ static void fold_lanes(group_of_rows const&, R const& reducer, sums_of_rows const& sums,
                                                    row_values<typename R::state_type>& states) {
#pragma unroll
    for (int tile = 0; tile < Lanes::tiles; ++tile) {
#pragma unroll
      for (int part = 0; part < Lanes::parts; ++part) {
        states.values[tile][part] = fold_row(reducer, sums, tile, part);
      }
    }
  }
  /// Merges what the threads of a row gathered each by itself, so that all of them have the row's state.
  template <Reducer R>
  __device__ __forceinline__ static void merge_lanes(group_of_rows const& group, R const& reducer,
                                                     row_values<typename R::state_type>& states) {
#pragma unroll
    for (int tile = 0; tile < Lanes::tiles; ++tile) {
#pragma unroll
      for (int part = 0; part < Lanes::parts; ++part) {
        merge_neighbours<holders, Lanes::holders_apart>(reducer, group.lane, states.values[tile][part]);
      }
    }
  }
  /// Merges into each row's state that of the row's sums: a thread's columns in order, then those of its neighbours.
  template <Reducer R>
  __device__ __forceinline__ static void reduce_rows(group_of_rows const& group, R const& reducer,
                                                     sums_of_rows const& sums,
                                                     row_values<typename R::state_type>& states) {
#pragma unroll
    for (int tile = 0; tile < Lanes::tiles; ++tile) {
#pragma unroll
      for (int part = 0; part < Lanes::parts; ++part) {
        typename R::state_type found = fold_row(reducer, sums, tile, part);
        merge_neighbours<holders, Lanes::holders_apart>(reducer, group.lane, found);
        reducer.merge(states.values[tile][part], found);
      }
    }
  }

 private:
  __device__ __forceinline__ static int row(group_of_rows const& group, int tile, int part) {
    return Lanes::first_row(group) + Lanes::rows_to(tile, part);
  }
  __device__ __forceinline__ static int column(group_of_rows const& group, int i) {
    return Lanes::first_column(group.lane) + Lanes::further(i);
  }
  template <class Visit>
  __device__ __forceinline__ static void each_place(Visit const& visit) {
    constexpr int step = Lanes::has_pairs ? 2 : 1;
#pragma unroll
    for (int tile = 0; tile < Lanes::tiles; ++tile) {
#pragma unroll
      for (int first = 0; first < Lanes::held; first += step) {
#pragma unroll
        for (int part = 0; part < Lanes::parts; ++part) {
#pragma unroll
          for (int i = 0; i < step; ++i) {
            visit(tile, part, first + i);
          }
        }
      }
    }
  }
  /// The state of a lane's sums of a row.
  template <class R>
  __device__ __forceinline__ static typename R::state_type fold_row(R const& reducer, sums_of_rows const& sums,
                                                                    int tile, int part) {
    if constexpr (PairReducer<R> && (Lanes::has_pairs || (takes_any_order<R> && Lanes::held % 2 == 0))) {
      return fold_pairs(reducer, sums, tile, part);
    } else {
      typename R::state_type found = reducer.identity();
#pragma unroll
      for (int i = 0; i < Lanes::held; ++i) {
        reducer.push(found, Lanes::sum(sums, tile, part, i));
      }
      return found;
    }
  }
  /// The same by pairs: of neighbours, or of any sums where the order makes no difference. Then there are two chains of
  /// pushes, which do not wait for each other.
  template <PairReducer R>
  __device__ __forceinline__ static typename R::state_type fold_pairs(R const& reducer, sums_of_rows const& sums,
                                                                      int tile, int part) {
    constexpr int chains = takes_any_order<R> && Lanes::held >= 4 ? 2 : 1;
    typename R::state_type found[chains];
#pragma unroll
    for (int i = 0; i < Lanes::held; i += 2) {
      auto const& first = Lanes::sum(sums, tile, part, i);
      auto const& second = Lanes::sum(sums, tile, part, i + 1);
      if (i < 2 * chains) {
        found[i / 2] = reducer.of_pair(first, second);
      } else {
        reducer.push_pair(found[i / 2 % chains], first, second);
      }
    }
    if constexpr (chains == 2) {
      reducer.merge(found[0], found[1]);
    }
    return found[0];
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
