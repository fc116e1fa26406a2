// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `warpgroup_rows<Sum, Columns, Rows>`: the words for rows of sums (RowWords, concepts/tile_mma.hpp) over what wgmma
/// leaves in registers (tile/cuda/sm_90/warpgroup_mma.cuh). Sum: float or std::int32_t. The sums of 64 rows are the
/// flat array that warpgroup_mma fills; those of 128 rows, or more, are an array of such arrays.
///
///     using rows = tessera::warpgroup_rows<float, 128>;          // float sums[64] of warpgroup_mma<..., 128>, awaited
///     using next = tessera::warpgroup_mma<tessera::bfloat16, 64>;
///     auto const lane = tessera::warpgroup_lane::of_thread();
///     rows::row_values<float> largest;
///     rows::each_row(lane, [](int, float& most) { most = -tessera::infinity; }, largest);
///     rows::reduce_rows(lane, tessera::maximum_reducer<float>{}, sums, largest);
///     rows::each_with_row(lane, sums, [](int, int, float& sum, float most) { sum -= most; }, largest);
///     next::a_tile a;                                             // the left operand of the next product
///     rows::as_operand<next, 16>(lane, sums, a);                  // columns 16 to 31
///
/// A row is held by four neighbouring lanes. What words do not ask of a lane, such as its rows, costs nothing. All
/// lanes of a warp call merge_lanes and reduce_rows together; warps need not.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/tile_mma.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/detail/row_words.cuh>
#include <tessera/tile/cuda/thread_index.cuh>

namespace tessera {
inline namespace v0 {

/// The calling thread in its warpgroup, which begins at a multiple of 128 threads: all that words for rows need of a
/// group.
struct warpgroup_lane {
  static constexpr int size = 4 * lanes_in_a_warp;
  int lane;  ///< the thread's number in the warpgroup

  /// The lane of this thread.
  __device__ __forceinline__ static warpgroup_lane of_thread() {
    return {static_cast<int>(thread_index() % unsigned{size})};
  }
  /// A thread in its warp, as if that were the first of a warpgroup: its rows are numbered 0 to 15. `index`:
  /// thread_index() or thread_index_here() (tile/cuda/thread_index.cuh).
  __device__ __forceinline__ static warpgroup_lane in_warp(unsigned index) {
    return {static_cast<int>(index % unsigned{lanes_in_a_warp})};
  }
};

namespace detail {

/// Where a lane of a warpgroup has its sums.
template <class Sum, int Columns, int Rows, class G>
struct warpgroup_sums : fragment_lanes {
  static_assert(std::is_same_v<Sum, float> || std::is_same_v<Sum, std::int32_t>,
                "tessera: sums of wgmma are float or std::int32_t");
  static_assert(Rows > 0 && Rows % 64 == 0 && Columns > 0 && Columns % 8 == 0,
                "tessera: wgmma has 64 rows for each of its instructions, and a multiple of 8 columns");
  static_assert(G::size == 4 * lanes_in_a_warp, "tessera: a warpgroup has 128 lanes");
  using group_type = G;
  static constexpr int rows = Rows;
  static constexpr int columns = Columns;
  static constexpr int tiles = Rows / 64;
  static constexpr int held = Columns / 4;
  using sum_tile = std::conditional_t<tiles == 1, Sum[Columns / 2], Sum[tiles][Columns / 2]>;

  __device__ __forceinline__ static int first_row(G const& group) {
    return group.lane / lanes_in_a_warp * 16 + row_in_tile(group.lane);
  }
  __device__ __forceinline__ static constexpr int rows_to(int tile, int part) { return 64 * tile + 8 * part; }
  /// Sums: a sum_tile, or that of other sums.
  template <class Sums>
  __device__ __forceinline__ static auto& sum(Sums& sums, [[maybe_unused]] int tile, int part, int i) {
    if constexpr (tiles == 1) {
      return sums[i / 2 * 4 + 2 * part + i % 2];
    } else {
      return sums[tile][i / 2 * 4 + 2 * part + i % 2];
    }
  }
};

/// Rounds two sums to neighbouring operands of 16 bits.
template <class Operand>
struct rounded_pair {
  __device__ __forceinline__ std::uint32_t operator()(float first, float second) const {
    static_assert(is_16_bit_float<Operand>,
                  "tessera: sums become operands of bfloat16 or float16 by themselves; "
                  "others need a function that packs them");
    return pack_pair<Operand>(first, second);
  }
};

}  // namespace detail

/// Columns: a multiple of 8. G: what the lane is asked of, a group of 128 lanes.
template <class Sum, int Columns, int Rows = 64, class G = warpgroup_lane>
struct warpgroup_rows : detail::row_words<detail::warpgroup_sums<Sum, Columns, Rows, G>> {
  using group_type = G;
  using sum_type = Sum;
  using sum_tile = typename detail::warpgroup_sums<Sum, Columns, Rows, G>::sum_tile;  ///< the registers of a lane
  static constexpr int rows = Rows;
  static constexpr int columns = Columns;

  /// The first of the thread's columns, of which there are two neighbours in each eight.
  __device__ __forceinline__ static int first_column(G const& group) { return lanes::first_column(group.lane); }

  /// The sums of `Count` columns from `first` on, a multiple of 8: those of a warpgroup_rows<Sum, Count>.
  template <int Count>
  __device__ __forceinline__ static auto& columns_of(sum_tile& sums, int first) {
    static_assert(lanes::tiles == 1 && Count % 8 == 0 && Count <= Columns,
                  "tessera: columns of 64 rows are chosen by eights");
    return reinterpret_cast<Sum(&)[Count / 2]>(sums[first / 2]);
  }

  /// Makes the left operand of the next product, a warpgroup_mma, of the sums from column `First` on, and of rows
  /// 64 Tile and further. pack(a, b) makes a register of two neighbours, which are rounded if nothing else is said. For
  /// operands of a byte it is pack(a, b, c, d), and the order of columns changes: of each sixteen, columns 2 t,
  /// 2 t + 1, 2 t + 8 and 2 t + 9 become neighbours, since a lane has them. The right operand's depth must have that
  /// order.
  template <class Next, int First, int Tile = 0, class Pack = detail::rounded_pair<typename Next::operand_type>>
  __device__ __forceinline__ static void as_operand(G const&, sum_tile const& sums, typename Next::a_tile& a,
                                                    Pack const& pack = {}) {
    constexpr int in_word = 4 / static_cast<int>(sizeof(typename Next::operand_type));
    static_assert(First % Next::depth == 0 && First + Next::depth <= Columns && 64 * Tile + Next::rows <= Rows &&
                      (in_word == 2 || in_word == 4),
                  "tessera: the next product's rows and depth are among these, and its operands have 16 or 8 bits");
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      auto const of = [&](int i) { return lanes::sum(sums, Tile, word % 2, First / 4 + word / 2 * in_word + i); };
      if constexpr (in_word == 2) {
        a[word] = pack(of(0), of(1));
      } else {
        a[word] = pack(of(0), of(1), of(2), of(3));
      }
    }
  }

 private:
  using lanes = detail::warpgroup_sums<Sum, Columns, Rows, G>;
};

static_assert(RowWords<warpgroup_rows<float, 128>> && RowWords<warpgroup_rows<std::int32_t, 8, 128>>);

}  // namespace v0
}  // namespace tessera
