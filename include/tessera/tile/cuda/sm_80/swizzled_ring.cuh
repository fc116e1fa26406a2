// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `multiply_swizzled`: multiplies operands that pass through a ring of swizzled stages in shared memory, by mma.sync.
/// While a stage is multiplied, later ones are on their way, and operands are loaded into registers a few products
/// before they are multiplied, those of the next stage, too. Warps wait for each other by mbarriers alone, as
/// refilled_ring.cuh says: for a stage that is filled, and, where they fill one, for all lanes to have loaded what it
/// has; so one of them may be ahead of another by a part of a stage. Stages have no gaps between their rows, which
/// would take a ninth of the shared memory.
/// A ring may go on from tile to tile: while an epilogue runs, the next tile's first stages are on their way.
///
/// One lane says for its warp that a stage is read. Where each lane does so by itself products of 128 x 128 sums lose 4
/// to 5 %, the others nothing. sm_80's code on an H200, TFLOP/s with the loop over stages by hand, and by this word, in
/// turns; gradient_ring (128 x 128) with 8192 x 8192 x 2304 and 4096 x 16384 x 4096:
///
///     128 x 128 sums    2048^3 382 383    4096^3 400 400    8192^3 400 400
///     128 x 256                           4096^3 421 422    8192^3 428 428
///     192 x 256                                             8192^3 439 439
///     gradient_ring     376 375    384 382
///
/// Shared memory is read once for each warp's rows and columns: a warp with 96 x 64 sums reads a sixth less for each of
/// them than one with 64 x 64, and has registers for columns of one product at a time.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/sm_80/refilled_ring.cuh>
#include <tessera/tile/cuda/sm_80/swizzled_operands.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
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

/// Whether a Fill's lanes write stages, beside their copies.
template <class Fill>
inline constexpr bool stores_stages = false;
/// What it says of itself.
template <class Fill>
requires requires {
  Fill::stores;
}
inline constexpr bool stores_stages<Fill> = Fill::stores;

/// Whether a Fill takes the sums of each stage.
template <class Fill>
inline constexpr bool takes_sums = false;
/// What it says of itself.
template <class Fill>
requires requires {
  Fill::takes;
}
inline constexpr bool takes_sums<Fill> = Fill::takes;

/// A ring on its way through a program. Its barriers count the arrivals that `init` says.
template <class M, int Stages>
struct ring_passage {
  using mma = M;                         ///< the product
  static constexpr int stages = Stages;  ///< how many stages there are
  swizzled_ring<M, Stages>& ring;        ///< the stages
  stage_ring<Stages>& barriers;          ///< says which stages are full, and which have been read
  pipeline_state<Stages> state;          ///< of the next stage that is multiplied

  /// Initialises the barriers. All threads of the group call it, once. Stores: whether lanes also write stages, of
  /// which warps say so.
  template <bool Stores = false, class G>
  __device__ __forceinline__ static void init(stage_ring<Stages>& barriers, G const& group) {
    if (group.lane == 0) {
      barriers.init(Stores ? G::size + G::warps : G::size, G::warps);
    }
    group.sync();
  }
  /// Begins the stages from `state` on but for the last one, as far as some are left.
  template <class Fill>
  __device__ __forceinline__ void begin(Fill& fill) const {
    pipeline_state<Stages> ahead = state;
    for (fill_step<Stages> const at : pipelined(ring_filler(ahead), Stages - 1)) {
      fill_stage(fill, at);
    }
  }
  /// Begins to fill a stage, if one is left, once all warps have used what it has.
  template <class Fill>
  __device__ __forceinline__ void fill_stage(Fill& fill, fill_step<Stages> const& at) const {
    shared_barrier& full = at.when_empty(barriers);
    bool const fills = fill.has_stage();
    fill.begin(at.stage);
    if (fills) {
      full.arrive_after_copies();
      if constexpr (stores_stages<Fill>) {
        sync_warp();
        if (thread_index() % lanes_in_a_warp == 0) {
          full.arrive();
        }
      }
      fill.advance();
    }
  }
};

/// A stage is multiplied in parts, each of 16 rows of a by all columns of b and 32 bytes of the depth. These are the
/// registers through which a warp's operands pass on their way, and the order in which they do.
template <swizzled_order OfA, swizzled_order OfB, class M>
struct passing_operands {
  /// How M lies in registers.
  using registers = typename M::registers;
  static constexpr int products = 4;                         ///< of a stage, each over 32 bytes of the depth
  static constexpr int row_tiles = registers::row_tiles;     ///< parts of a product
  static constexpr int pairs = registers::column_tiles / 2;  ///< loads of a product's columns
  static constexpr int parts = products * row_tiles;         ///< of a stage
  /// Rows of so many parts are in registers. 48 rows of a warp have totals beside them.
  static constexpr int slots = row_tiles == 3 ? 2 : row_tiles % 3 == 0 ? 3 : 4;
  static constexpr int ahead = slots - 1;  ///< rows are loaded so many parts before they are used
  /// Whether there are registers for columns of two products. Else those of the next one replace the last one's as
  /// these are done.
  static constexpr bool has_next_columns =
      row_tiles >= pairs && row_tiles * registers::column_tiles <= 32 && multiplied_operands<M>::halves == 1;
  /// The part of a product from which on columns of the next one are loaded.
  static constexpr int loads_columns_from = has_next_columns ? row_tiles - pairs : row_tiles - 1;
  /// The part before which the next stage is awaited.
  static constexpr int awaits_at = min(parts - ahead, parts - row_tiles + loads_columns_from);
  static_assert(registers::column_tiles % 2 == 0 && parts % slots == 0 && loads_columns_from >= 0,
                "tessera: a warp of a ring has 32, 48, 64 or 96 rows and at most 64 columns");

  std::uint32_t first_a;                                 ///< the address of the lane's part of the first stage of a
  std::uint32_t first_b;                                 ///< and of b
  std::uint32_t rows[slots][4];                          ///< of parts
  typename M::b_tile columns[has_next_columns ? 2 : 1];  ///< of products
  typename multiplied_operands<M>::column_operand multiplied;  ///< columns of the product at hand

  /// Loads a part of the rows of a stage.
  template <int Part>
  __device__ __forceinline__ void load_rows(int stage) {
    swizzled_operands<M>::template load_rows<OfA>(rows[Part % slots],
                                                  first_a + static_cast<std::uint32_t>(stage * 128 * M::rows),
                                                  Part / row_tiles, Part % row_tiles);
  }
  /// Loads two tiles of columns of a stage.
  template <int Product>
  __device__ __forceinline__ void load_columns(int stage, int pair) {
    swizzled_operands<M>::template load_columns<OfB>(columns[has_next_columns ? Product % 2 : 0],
                                                     first_b + static_cast<std::uint32_t>(stage * 128 * M::columns),
                                                     Product, static_cast<std::uint32_t>(pair));
  }
  /// Loads the first operands of a stage.
  __device__ __forceinline__ void begin(int stage) {
    each_constant<pairs>([&](auto pair) { load_columns<0>(stage, pair.value); });
    each_constant<ahead>([&](auto part) { load_rows<part.value>(stage); });
  }
  /// What was loaded last from a stage, before its last part is multiplied.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t last_rows() const { return rows[(parts - 1) % slots][0]; }
  /// Multiplies a part, and loads what later ones need, from the stage or, where it goes on, from the next one.
  template <int Part>
  __device__ __forceinline__ void multiply(int stage, int next, bool goes_on, typename M::sum_tile& sums) {
    using operands = multiplied_operands<M>;
    constexpr int product = Part / row_tiles;
    constexpr int tile = Part % row_tiles;
    constexpr bool rows_are_next = Part + ahead >= parts;
    constexpr bool columns_are_next = product + 1 == products;
    auto const load_next = [&](int pair) {
      if (!columns_are_next || goes_on) {
        load_columns<(product + 1) % products>(columns_are_next ? next : stage, pair);
      }
    };
    if constexpr (tile == 0) {
      multiplied = operands::columns_of(columns[has_next_columns ? product % 2 : 0], 0);
    }
    if (!rows_are_next || goes_on) {
      load_rows<(Part + ahead) % parts>(rows_are_next ? next : stage);
    }
    if constexpr (has_next_columns && tile >= loads_columns_from) {
      load_next(tile - loads_columns_from);
    }
    auto const own = operands::rows_of(rows[Part % slots]);
    each_constant<pairs>([&](auto pair) {
      operands::multiply_rows(own, multiplied, 2 * pair.value, sums.values[tile][2 * pair.value]);
      operands::multiply_rows(own, multiplied, 2 * pair.value + 1, sums.values[tile][2 * pair.value + 1]);
      if constexpr (!has_next_columns && tile == loads_columns_from) {
        load_next(pair.value);
      }
    });
  }
};

/// Says for a warp that a stage is read. The sync orders all lanes' loads before the arrival, which releases them to
/// those who fill the stage again. racecheck does not see that one lane arrives for others, and reports hazards; none
/// where each lane arrives.
template <class G>
__device__ __forceinline__ void release_stage(G const& group, shared_barrier& empty, std::uint32_t last_read) {
  sync_warp();
  empty.arrive_after(last_read, group.lane % lanes_in_a_warp == 0);
}

/// Adds the product of `steps` stages, at least one, to the sums, from passage.place on, where passage.begin() or an
/// earlier call has begun the first ones. All warps of the group reach this call.
///
/// Fill: what fills stages, one after the other. begin(stage) starts the lane's copies; has_stage() says whether a
/// stage is left, without which begin() copies nothing that counts; advance() goes on to the next one. Where `stores`
/// is true, begin() also writes to the stage.
///
/// Where `takes` is true, take<Tile>(stage, sums) gets what was added up to the sums of a warp's 16 rows number Tile
/// over each stage, while the next 16 rows are multiplied, and leaves what the next stage is added to. It returns the
/// last word that it reads from what was copied with the stage, which is released then.
template <swizzled_order OfA, swizzled_order OfB, class Passage, class Fill>
__device__ __forceinline__ void multiply_swizzled(typename Passage::mma::group_type const& group, Passage& passage,
                                                  int steps, Fill& fill, typename Passage::mma::sum_tile& sums) {
  using mma = typename Passage::mma;
  using operands = swizzled_operands<mma>;
  using passing = passing_operands<OfA, OfB, mma>;
  // With more stages than two a warp fills one in the second half of another, and so waits for no warp that is less
  // behind.
  constexpr int fills_at = Passage::stages > 2 ? passing::parts / 2 + 2 : takes_sums<Fill> ? passing::parts / 4 : 0;
  auto& barriers = passage.barriers;
  passing held;
  held.first_a = shared_address(passage.ring.a) + operands::template offset_of_a<OfA>(group);
  held.first_b = shared_address(passage.ring.b) + operands::template offset_of_b<OfB>(group);
  barriers.await_full(passage.state);
  held.begin(passage.state.stage);
#pragma unroll 1
  for (read_step<Passage::stages> const at : pipelined(refilling_reader(passage.state), steps)) {
    auto const next = reads_later<1>(at);
    bool const goes_on = next.index < steps;
    each_constant<passing::parts>([&](auto part) {
      if constexpr (part.value == fills_at) {
        passage.fill_stage(fill, fills_later<Passage::stages - 1>(at));
      }
      if constexpr (part.value == passing::awaits_at) {
        if (goes_on) {
          barriers.await_full(next.state);
        }
      }
      if constexpr (part.value + 1 == passing::parts && !takes_sums<Fill>) {
        release_stage(group, barriers.empty[at.stage], held.last_rows());
      }
      held.template multiply<part.value>(at.stage, next.stage, goes_on, sums);
      if constexpr (takes_sums<Fill>) {
        if constexpr (part.value > passing::parts - passing::row_tiles) {
          fill.template take<part.value - (passing::parts - passing::row_tiles) - 1>(at.stage, sums);
        }
      }
    });
    if constexpr (takes_sums<Fill>) {
      // Rows of the stage were loaded before the next one was awaited, and so before these words.
      release_stage(group, barriers.empty[at.stage], fill.template take<passing::row_tiles - 1>(at.stage, sums));
    }
  }
}

/// Calls use(tile, own) for each 16 rows of a warp with the lane's sums of them, as epilogues take them. Sums: a tile
/// of sums, or of what was made of them. `use` is compiled once, for the rows whose sums lie in the first registers:
/// those of other rows are moved there.
template <class M, class Sums, class Use>
__device__ __forceinline__ void each_sixteen_rows(Sums& sums, Use const& use) {
  constexpr int columns = M::registers::column_tiles;
#pragma unroll 1
  for (int tile = 0; tile < M::registers::row_tiles; ++tile) {
    std::remove_cvref_t<decltype(sums.values[0][0][0])> own[4 * columns];
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
