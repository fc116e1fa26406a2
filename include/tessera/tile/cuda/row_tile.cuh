// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The row_tile for groups of CUDA threads. Each warp has whole rows. A fragment's row is held by four lanes. What
/// tensor cores leave of two neighbouring tiles of eight columns is, rounded to 16 bits, the left operand of sixteen:
/// sums become operands without an exchange. Sums of float operands, which no tensor core takes, are exchanged.
#pragma once

#include <type_traits>

#include <tessera/concepts/reducer.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/gemm_tile.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/row_tile.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// A value for each row that a lane holds, `Parts` in each of `Tiles` tiles.
template <class Value, int Tiles, int Parts>
struct values_of_rows {
  Value values[Tiles][Parts];
};

/// Merges the states of `Lanes` neighbouring lanes. All of them end with the same bits, because the lower lane's state
/// is always the first.
template <int Lanes, class R>
__device__ __forceinline__ void merge_neighbours(R const& reducer, int lane, typename R::state_type& state) {
#pragma unroll
  for (int distance = 1; distance < Lanes; distance *= 2) {
    typename R::state_type other = move_words(state, across{distance});
    if ((lane & distance) != 0) {
      reducer.merge(other, state);
      state = other;
    } else {
      reducer.merge(state, other);
    }
  }
}

/// Rows of fragments.
template <class T, class Shape, class G>
struct fragment_rows {
  using registers = gemm_fragments<T, Shape, G, grid_of_rows<G::size / lanes_in_a_warp>>;
  static constexpr int holders = 4;  ///< lanes that hold a row
  static constexpr int tiles = registers::row_tiles;
  static constexpr int parts = 2;  ///< rows that a lane holds of a tile
  static constexpr int columns = 2 * registers::column_tiles;

  __device__ __forceinline__ static int row(G const& group, int tile, int part) {
    return registers::of(group).row + 16 * tile + group.lane % lanes_in_a_warp / holders + 8 * part;
  }
  __device__ __forceinline__ static int column(G const& group, int i) {
    return i / 2 * 8 + group.lane % holders * 2 + i % 2;
  }
  template <class Sums>
  __device__ __forceinline__ static auto& sum(Sums& sums, int tile, int part, int i) {
    return sums.values[tile][i / 2][2 * part + i % 2];
  }
  /// Rounds sums of two tiles of eight columns for each sixteen of the operand.
  template <class Next, int First>
  __device__ __forceinline__ static void as_operand(G const&, typename registers::sum_tile const& sums,
                                                    typename Next::a_tile& a) {
    using operand = typename Next::operand_type;
    static_assert(is_16_bit_float<operand>, "tessera: sums of tensor cores become operands of bfloat16 or float16");
#pragma unroll
    for (int step = 0; step < Next::depth / 16; ++step) {
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          auto const& from = sums.values[tile][First / 8 + 2 * step + word / 2];
          a.words[step][tile][word] = pack_pair<operand>(from[word % 2 * 2], from[word % 2 * 2 + 1]);
        }
      }
    }
  }
};

/// Rows of multiply-adds.
template <class T, class Shape, class G>
struct multiply_add_rows {
  using registers = gemm_multiply_adds<T, Shape, G>;
  static constexpr int holders = registers::thread_columns;
  static constexpr int tiles = registers::row_count;
  static constexpr int parts = 1;
  static constexpr int columns = registers::column_count;

  __device__ __forceinline__ static int row(G const& group, int tile, int) {
    return tile * registers::thread_rows + group.lane / holders;
  }
  __device__ __forceinline__ static int column(G const& group, int i) { return i * holders + group.lane % holders; }
  template <class Sums>
  __device__ __forceinline__ static auto& sum(Sums& sums, int tile, int, int i) {
    return sums.values[tile][i];
  }
  template <class Next, int First>
  __device__ __forceinline__ static void as_operand(G const& group, typename registers::sum_tile const& sums,
                                                    typename Next::a_tile& a) {
    static_assert(std::is_same_v<typename Next::operand_type, float>,
                  "tessera: sums of multiply-adds become operands of float");
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
      for (int k = 0; k < Next::depth; ++k) {
        int const holder = group.lane % lanes_in_a_warp / holders * holders + (First + k) % holders;
        a.values[tile][k] = shuffle(sums.values[tile][(First + k) / holders], holder);
      }
    }
  }
};

template <class T, class Shape, class G>
using rows_in_registers =
    std::conditional_t<std::is_same_v<T, float>, multiply_add_rows<T, Shape, G>, fragment_rows<T, Shape, G>>;

}  // namespace detail

/// The tile in registers of a warp or a thread block whose warps have whole rows.
template <class T, class Shape, CudaGroup G>
struct row_tile<T, Shape, G>
    : detail::tile_in_registers<T, Shape, G, typename detail::rows_in_registers<T, Shape, G>::registers> {
  /// The product.
  using base = detail::tile_in_registers<T, Shape, G, typename detail::rows_in_registers<T, Shape, G>::registers>;
  using typename base::sum_tile;

 private:
  using lane_rows = detail::rows_in_registers<T, Shape, G>;

 public:
  static constexpr int holders = lane_rows::holders;  ///< threads that hold a row
  /// A value for each row.
  template <class Value>
  using row_values = detail::values_of_rows<Value, lane_rows::tiles, lane_rows::parts>;

  /// Calls visit(row, value...) for each row that this thread holds.
  template <class Visit, class... Values>
  __device__ __forceinline__ static void each_row(G const& group, Visit const& visit, Values&... values) {
#pragma unroll
    for (int tile = 0; tile < lane_rows::tiles; ++tile) {
#pragma unroll
      for (int part = 0; part < lane_rows::parts; ++part) {
        visit(lane_rows::row(group, tile, part), values.values[tile][part]...);
      }
    }
  }
  /// The same, by one thread for each row.
  template <class Visit, class... Values>
  __device__ __forceinline__ static void each_row_once(G const& group, Visit const& visit, Values&... values) {
    if (group.lane % lane_rows::holders == 0) {
      each_row(group, visit, values...);
    }
  }
  /// Calls visit(row, column, sum, value...) for each sum that this thread holds, with values of its row.
  template <class Visit, class... Values>
  __device__ __forceinline__ static void each_with_row(G const& group, sum_tile& sums, Visit const& visit,
                                                       Values&... values) {
#pragma unroll
    for (int tile = 0; tile < lane_rows::tiles; ++tile) {
#pragma unroll
      for (int part = 0; part < lane_rows::parts; ++part) {
#pragma unroll
        for (int i = 0; i < lane_rows::columns; ++i) {
          visit(lane_rows::row(group, tile, part), lane_rows::column(group, i), lane_rows::sum(sums, tile, part, i),
                values.values[tile][part]...);
        }
      }
    }
  }
  /// Fills sums of another RowTile with as many rows and columns: to = visit(row, column, sum, value...).
  template <class To, class Visit, class... Values>
  __device__ __forceinline__ static void map_sums(G const& group, sum_tile const& sums, typename To::sum_tile& to,
                                                  Visit const& visit, Values&... values) {
    static_assert(To::rows == base::rows && To::columns == base::columns && To::holders == holders,
                  "tessera: both tiles have as many rows and columns, and both or neither are of float");
#pragma unroll
    for (int tile = 0; tile < lane_rows::tiles; ++tile) {
#pragma unroll
      for (int part = 0; part < lane_rows::parts; ++part) {
#pragma unroll
        for (int i = 0; i < lane_rows::columns; ++i) {
          lane_rows::sum(to, tile, part, i) = visit(lane_rows::row(group, tile, part), lane_rows::column(group, i),
                                                    lane_rows::sum(sums, tile, part, i), values.values[tile][part]...);
        }
      }
    }
  }
  /// Merges what the threads of a row gathered each by itself, so that all of them have the row's state.
  template <Reducer R>
  __device__ __forceinline__ static void merge_lanes(G const& group, R const& reducer,
                                                     row_values<typename R::state_type>& states) {
#pragma unroll
    for (int tile = 0; tile < lane_rows::tiles; ++tile) {
#pragma unroll
      for (int part = 0; part < lane_rows::parts; ++part) {
        detail::merge_neighbours<lane_rows::holders>(reducer, group.lane, states.values[tile][part]);
      }
    }
  }
  /// Merges into each row's state that of the row's sums: a thread's columns in order, then those of its neighbours.
  template <Reducer R>
  __device__ __forceinline__ static void reduce_rows(G const& group, R const& reducer, sum_tile const& sums,
                                                     row_values<typename R::state_type>& states) {
#pragma unroll
    for (int tile = 0; tile < lane_rows::tiles; ++tile) {
#pragma unroll
      for (int part = 0; part < lane_rows::parts; ++part) {
        typename R::state_type found = reducer.identity();
#pragma unroll
        for (int i = 0; i < lane_rows::columns; ++i) {
          reducer.push(found, lane_rows::sum(sums, tile, part, i));
        }
        detail::merge_neighbours<lane_rows::holders>(reducer, group.lane, found);
        reducer.merge(states.values[tile][part], found);
      }
    }
  }
  /// Rounds the sums from column `First` on to the left operand of the next product.
  template <class Next, int First>
  __device__ __forceinline__ static void as_operand(G const& group, sum_tile const& sums, typename Next::a_tile& a) {
    static_assert(detail::takes_sums<Next, row_tile, First>,
                  "tessera: the next product has as many rows, its depth ends within the columns, and its operands are "
                  "float, bfloat16 or float16");
    lane_rows::template as_operand<Next, First>(group, sums, a);
  }
};

}  // namespace v0
}  // namespace tessera
