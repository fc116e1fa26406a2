// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `multiply_swizzled`: multiplies operands that pass through a ring of swizzled stages in shared memory, by mma.sync.
/// While a stage is multiplied, later ones are on their way, and the operands of the next product are loaded to where
/// they are multiplied from; a stage's first operands are loaded before the last product of the stage before, so that
/// no warp waits for them behind the sync. That takes twice the registers for operands. Stages have no gaps between
/// their rows, which would take a ninth of the shared memory. A ring may go on from tile to tile: while an epilogue
/// runs, the next tile's first stages are on their way.
#pragma once

#include <cstdint>

#include <tessera/core/with_constant.hpp>
#include <tessera/tile/copies_in_flight.hpp>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/sm_80/swizzled_operands.cuh>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/tile/swizzled_tile.hpp>

namespace tessera {
inline namespace v0 {
/// Stages of 128 bytes of the depth, of both operands of M.
template <class M, int Stages>
struct swizzled_ring {
  static_assert(Stages >= 2, "tessera: a ring has at least two stages: one is used while another is filled");
  static constexpr int stages = Stages;             ///< how many stages there are
  static constexpr int a_bytes = 128 * M::rows;     ///< bytes of a stage of a
  static constexpr int b_bytes = 128 * M::columns;  ///< bytes of a stage of b

  alignas(1024) unsigned char a[Stages][a_bytes];  ///< stages of a
  alignas(1024) unsigned char b[Stages][b_bytes];  ///< stages of b
};

/// A stage of an operand along the depth, to be filled by an AsyncSource.
template <class T, int Rows>
__device__ __forceinline__ swizzled_tile<T, Rows>& stage_along(unsigned char* stage) {
  return *reinterpret_cast<swizzled_tile<T, Rows>*>(stage);
}

/// A stage of an operand of 2 bytes that lies across the depth, to be filled by an AsyncSource: a row for each of 64
/// numbers of the depth, in boxes of 64 columns.
template <class T, int Columns>
struct stage_across {
  using value_type = T;
  static constexpr int rows = 64;
  static constexpr int columns = Columns;
  /// 64 columns of a stage.
  using box = swizzled_tile<T, rows>;
  static_assert(sizeof(T) == 2 && Columns % box::columns == 0);
  unsigned char* stage;  ///< in shared memory

  /// Columns `column` to `column` + 7 of a row; `column` is a multiple of 8.
  __device__ __forceinline__ tile_chunk<T>& chunk(int row, int column) const {
    return reinterpret_cast<box*>(stage)[column / box::columns].chunk(row, column % box::columns);
  }
};

/// Adds the product of `steps` stages to the sums, from ring.a[stage] and ring.b[stage] on. Before the first call
/// Stages - 1 stages were begun from stage 0 on, each as a batch of copies_in_flight. fill(stage) begins to fill one
/// more, or does nothing where no stage is left. All threads of the group reach this call. After it other warps may
/// still read the last stage, which the next call of fill() must not meet before a sync.
template <swizzled_order OfA, swizzled_order OfB, class M, class Ring, class Fill>
__device__ __forceinline__ void multiply_swizzled(typename M::group_type const& group, Ring& ring, int& stage,
                                                  int steps, Fill const& fill, typename M::sum_tile& sums) {
  using copies = copies_in_flight<typename M::group_type>;
  using operands = swizzled_operands<M>;
  constexpr int products = 4;  // of a stage, each of 32 bytes of the depth
  std::uint32_t const first_a = shared_address(ring.a) + operands::template offset_of_a<OfA>(group);
  std::uint32_t const first_b = shared_address(ring.b) + operands::template offset_of_b<OfB>(group);
  typename M::a_tile a[2];
  typename M::b_tile b[2];
  auto const load = [&](int which, int from, std::uint32_t product) {
    operands::template load_a<OfA>(a[which], first_a + static_cast<std::uint32_t>(from * Ring::a_bytes), product);
    operands::template load_b<OfB>(b[which], first_b + static_cast<std::uint32_t>(from * Ring::b_bytes), product);
  };
  auto const await_stage = [&] {
    copies::template await<Ring::stages - 2>();
    group.sync();  // other threads' copies have come, too, and all have loaded what the stage before has
  };
  await_stage();
  load(0, stage, 0);
  for (int step = 0; step < steps; ++step) {
    int const next = stage + 1 < Ring::stages ? stage + 1 : 0;
    fill(stage > 0 ? stage - 1 : Ring::stages - 1);
    copies::commit();
    each_constant<products>([&](auto i) {
      if constexpr (i.value + 1 < products) {
        load((i.value + 1) % 2, stage, i.value + 1);
      } else if (step + 1 < steps) {
        await_stage();
        load(0, next, 0);
      }
      M::multiply(group, a[i.value % 2], b[i.value % 2], sums);
    });
    stage = next;
  }
}

/// Calls use(tile, own) for each 16 rows of a warp with the lane's sums of them, as epilogues take them. `use` is
/// compiled once, for the rows whose sums lie in the first registers: those of other rows are moved there.
template <class M, class Use>
__device__ __forceinline__ void each_sixteen_rows(typename M::sum_tile& sums, Use const& use) {
  constexpr int columns = M::registers::column_tiles;
#pragma unroll 1
  for (int tile = 0; tile < M::registers::row_tiles; ++tile) {
    typename M::sum_type own[4 * columns];
#pragma unroll
    for (int i = 0; i < 4 * columns; ++i) {
      own[i] = sums.values[0][i / 4][i % 4];
    }
    use(tile, own);
#pragma unroll
    for (int i = 0; i < (M::registers::row_tiles - 1) * columns * 4; ++i) {
      int const row = i / (4 * columns);
      sums.values[row][i / 4 % columns][i % 4] = sums.values[row + 1][i / 4 % columns][i % 4];
    }
  }
}

}  // namespace v0
}  // namespace tessera
