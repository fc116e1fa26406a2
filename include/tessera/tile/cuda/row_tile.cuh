// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The row_tile for groups of CUDA threads. Each warp has whole rows. A fragment's row is held by four lanes. What
/// tensor cores leave of two neighbouring tiles of eight columns is, rounded to 16 bits, the left operand of sixteen:
/// sums become operands without an exchange. Sums of float operands, which no tensor core takes, are exchanged. Where a
/// warp has eight rows, they are columns of the tensor cores (detail/turned_fragments.cuh).
#pragma once

#include <type_traits>

#include <tessera/core/precision.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/detail/row_words.cuh>
#include <tessera/tile/cuda/detail/turned_fragments.cuh>
#include <tessera/tile/cuda/gemm_tile.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/row_tile.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Rows of fragments.
template <class T, class Shape, class G>
struct fragment_rows : fragment_lanes {
  using registers = gemm_fragments<T, Shape, G, grid_of_rows<G::size / lanes_in_a_warp>>;
  using group_type = G;
  using sum_tile = typename registers::sum_tile;
  static constexpr int rows = Shape::m;
  static constexpr int columns = Shape::n;
  static constexpr int tiles = registers::row_tiles;
  static constexpr int held = 2 * registers::column_tiles;

  __device__ __forceinline__ static int first_row(G const& group) {
    return registers::of(group).row + row_in_tile(group.lane);
  }
  __device__ __forceinline__ static constexpr int rows_to(int tile, int part) { return 16 * tile + 8 * part; }
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
  using group_type = G;
  using sum_tile = typename registers::sum_tile;
  static constexpr int holders = registers::thread_columns;
  static constexpr int holders_apart = 1;
  static constexpr int rows = Shape::m;
  static constexpr int columns = Shape::n;
  static constexpr int tiles = registers::row_count;
  static constexpr int parts = 1;
  static constexpr int held = registers::column_count;
  static constexpr bool has_pairs = false;

  __device__ __forceinline__ static int first_row(G const& group) { return group.lane / holders; }
  __device__ __forceinline__ static constexpr int rows_to(int tile, int) { return tile * registers::thread_rows; }
  __device__ __forceinline__ static int first_column(int lane) { return lane % holders; }
  __device__ __forceinline__ static constexpr int further(int i) { return i * holders; }
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

/// Whether each warp has eight rows of a tile of tensor cores.
template <class T, class Shape, class G>
inline constexpr bool has_eight_rows = !std::is_same_v<T, float> && Shape::m * lanes_in_a_warp == 8 * G::size;

template <class T, class Shape, class G>
using rows_of_fragments =
    std::conditional_t<has_eight_rows<T, Shape, G>, turned_rows<T, Shape, G>, fragment_rows<T, Shape, G>>;
template <class T, class Shape, class G>
using rows_in_registers =
    std::conditional_t<std::is_same_v<T, float>, multiply_add_rows<T, Shape, G>, rows_of_fragments<T, Shape, G>>;

}  // namespace detail

/// The tile in registers of a warp or a thread block whose warps have whole rows.
template <class T, class Shape, CudaGroup G>
struct row_tile<T, Shape, G>
    : detail::tile_in_registers<T, Shape, G, typename detail::rows_in_registers<T, Shape, G>::registers>,
      detail::row_words<detail::rows_in_registers<T, Shape, G>> {
  /// The product.
  using base = detail::tile_in_registers<T, Shape, G, typename detail::rows_in_registers<T, Shape, G>::registers>;
  using typename base::sum_tile;

 private:
  using lane_rows = detail::rows_in_registers<T, Shape, G>;

 public:
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
