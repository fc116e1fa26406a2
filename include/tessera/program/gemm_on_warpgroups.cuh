// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_on_warpgroups`: the matrix product a b^T by sm_90a's tensor cores, whatever becomes of the sums.
///
/// A cluster of two thread blocks computes 256 x 256 sums at a time, each block 128 x 256, and goes on to the next
/// until there are none (the grid fills the chip once). In each block one warpgroup, of which one thread works, has the
/// copy engine bring pieces 128 bytes deep of a (128 rows) and of b (256 rows: half of them for itself, half from the
/// other block, each copy written to both) into a ring in shared memory; two warpgroups multiply 64 x 256 each and hand
/// the sums, in registers, to the epilogue. While one warpgroup is in its epilogue the other may still multiply, and
/// the copies for the next tile are under way.
///
/// Cost of 8192^3 in bf16: 1.1e12 operations, 32 KiB through L2 for 4.2e6 of them (each block's share of what the two
/// copy).
///
/// An epilogue is a trivially copyable type with `scratch_type` (a warp's own, in shared memory), prepare(), which one
/// thread calls, operator()(sums, place, scratch) for the 16 x 256 sums of a warp, laid out as warpgroup_mma.cuh says,
/// and finish(), both called by whole warps. One that has a `deferred_type` has, instead of operator(), defer(sums, place,
/// deferred), which leaves in registers what is still to be done, and run_deferred<0> and <1>(deferred, place, scratch),
/// which do it while the tensor cores work on the next tile: there are about 90 registers to spare.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/tile/cuda/barrier.cuh>
#include <tessera/tile/cuda/bulk_tensor.cuh>
#include <tessera/tile/cuda/cluster.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/register_budget.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/warpgroup_mma.cuh>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/tile_order.hpp>
#include <tessera/tuning/linear.hpp>

namespace tessera {
inline namespace v0 {

/// The extents of the program's tiles and copies.
struct warpgroup_gemm_shape {
  static constexpr int block_rows = 128;
  static constexpr int columns = 256;
  static constexpr int blocks = 2;
  static constexpr int rows = block_rows * blocks;
  static constexpr int depth_bytes = 128;
  static constexpr int consumers = 2;
  static constexpr int warpgroup = 128;
};

namespace detail {

/// Whether an epilogue puts off a part of its work, until the next tile's multiplications are under way.
template <class Epilogue>
inline constexpr bool is_deferring = requires { typename Epilogue::deferred_type; };

/// What the epilogue of the tile before has put off, in registers.
template <class Epilogue>
struct deferred_work {
  template <int Half, class Scratch>
  __device__ __forceinline__ void run(Epilogue const&, Scratch&) const {}
};
template <class Epilogue>
requires is_deferring<Epilogue>
struct deferred_work<Epilogue> {
  typename Epilogue::deferred_type work;
  box_place place;
  bool is_there = false;

  template <class Sums>
  __device__ __forceinline__ void take(Epilogue const& epilogue, Sums const& sums, box_place first) {
    epilogue.defer(sums, first, work);
    place = first;
    is_there = true;
  }
  template <int Half, class Scratch>
  __device__ __forceinline__ void run(Epilogue const& epilogue, Scratch& scratch) const {
    if (is_there) {
      epilogue.template run_deferred<Half>(work, place, scratch);
    }
  }
};

}  // namespace detail

template <class Operand, class Epilogue, warpgroup_gemm_policy Policy>
struct gemm_on_warpgroups {
  using shape = warpgroup_gemm_shape;
  using mma = warpgroup_mma<Operand, shape::columns>;
  static constexpr int lanes = shape::warpgroup * (1 + shape::consumers);
  static constexpr int blocks_per_cluster = shape::blocks;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  static constexpr bool is_persistent = true;
  static constexpr int a_bytes = shape::block_rows * shape::depth_bytes;
  static constexpr int b_bytes = shape::columns * shape::depth_bytes;
  static constexpr int depth =
      shape::depth_bytes / static_cast<int>(sizeof(typename gemm_operand<Operand>::value_type));

  struct scratch_type {
    alignas(1024) unsigned char a[Policy.stages][a_bytes];
    alignas(1024) unsigned char b[Policy.stages][b_bytes];
    typename Epilogue::scratch_type of_warp[4 * shape::consumers];
    shared_barrier full[Policy.stages];   ///< a piece is there
    shared_barrier empty[Policy.stages];  ///< both blocks have multiplied with a piece
  };

  tensor_map a;  ///< boxes of 128 rows
  tensor_map b;  ///< likewise
  tile_order order;
  std::int32_t steps;  ///< pieces of depth, at least 1
  Epilogue epilogue;

  /// `which` is the number of the thread block: the launch has as many as run at a time, or fewer.
  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t,
                                             scratch_type& scratch) const {
    if (group.lane == 0) {
      prepare(scratch);
    }
    sync_cluster();
    const int warpgroup = __shfl_sync(0xffffffffU, group.lane / shape::warpgroup, 0);
    if (warpgroup == 0) {
      lower_registers<Policy.producer_registers>();
      if (group.lane == 0) {
        produce(scratch);
      }
    } else {
      raise_registers<Policy.consumer_registers>();
      consume(scratch, warpgroup - 1, group.lane % shape::warpgroup);
    }
    __syncwarp();
    sync_cluster();  // no block ends while the other still writes to its shared memory
  }

 private:
  /// A place in the ring of pieces. Both sides count alike.
  struct ring_place {
    int stage = 0;
    unsigned phase = 0;
    __device__ __forceinline__ void advance() {
      if (++stage == Policy.stages) {
        stage = 0;
        phase ^= 1;
      }
    }
  };

  __device__ __forceinline__ void prepare(scratch_type& scratch) const {
    prefetch_tensor_map(a);
    prefetch_tensor_map(b);
    epilogue.prepare();
    constexpr int releases = shape::blocks * shape::consumers * 4;  // a warp each
    for (int stage = 0; stage < Policy.stages; ++stage) {
      scratch.full[stage].init(1);
      scratch.empty[stage].init(releases);
    }
    fence_barrier_init();
  }

  __device__ __forceinline__ void produce(scratch_type& scratch) const {
    constexpr int half = shape::columns / shape::blocks;
    constexpr std::uint16_t everyone = (1 << shape::blocks) - 1;
    const auto rank = static_cast<std::int32_t>(rank_in_cluster());
    ring_place place;
    for (auto index = static_cast<std::int32_t>(cluster_index()); index < order.count(); index += stride()) {
      const tile_order::place tile = order.at(index);
      const std::int32_t row = tile.row * shape::rows + rank * shape::block_rows;
      const std::int32_t column = tile.column * shape::columns + rank * half;
      for (std::int32_t step = 0; step < steps; ++step) {
        shared_barrier& full = scratch.full[place.stage];
        scratch.empty[place.stage].wait(place.phase ^ 1);
        full.arrive_and_expect(a_bytes + b_bytes);
        load_box(scratch.a[place.stage], a, full, {step * depth, row});
        load_box_for_cluster(scratch.b[place.stage] + rank * (b_bytes / shape::blocks), b, full, {step * depth, column},
                             everyone);
        place.advance();
      }
    }
  }

  __device__ __forceinline__ void consume(scratch_type& scratch, int consumer, int lane) const {
    const int warp = __shfl_sync(0xffffffffU, lane / 32, 0);
    const auto rank = static_cast<std::int32_t>(rank_in_cluster());
    const int first_row = static_cast<int>(rank) * shape::block_rows + consumer * mma::rows + warp * 16;
    typename Epilogue::scratch_type& own = scratch.of_warp[4 * consumer + warp];
    ring_place place;
    typename mma::sum_type sums[mma::registers];
    detail::deferred_work<Epilogue> deferred;
    for (auto index = static_cast<std::int32_t>(cluster_index()); index < order.count(); index += stride()) {
      multiply_tile(scratch, consumer, place, sums, deferred, own);
      const tile_order::place tile = order.at(index);
      const box_place first{tile.column * shape::columns, tile.row * shape::rows + first_row};
      if constexpr (detail::is_deferring<Epilogue>) {
        deferred.take(epilogue, sums, first);
      } else {
        epilogue(sums, first, own);
      }
    }
    deferred.template run<0>(epilogue, own);
    deferred.template run<1>(epilogue, own);
    epilogue.finish();
  }

  /// One piece is multiplied while the next is awaited; a piece is given back when the next one's multiplications have
  /// begun. Behind the first two come the halves of what the epilogue of the tile before has put off.
  __device__ __forceinline__ void multiply_tile(scratch_type& scratch, int consumer, ring_place& place,
                                                typename mma::sum_type (&sums)[mma::registers],
                                                detail::deferred_work<Epilogue>& deferred,
                                                typename Epilogue::scratch_type& own) const {
    const operand_pair operands{
        matrix_descriptor::rows_of_128_bytes(
            detail::plain_shared_address(scratch.a[0]) +
            static_cast<std::uint32_t>(consumer * mma::rows * shape::depth_bytes)),
        matrix_descriptor::rows_of_128_bytes(detail::plain_shared_address(scratch.b[0]))};
    pin_registers(sums);
    int before = place.stage;
    multiply_piece(scratch, operands, place, sums, false);
    deferred.template run<0>(epilogue, own);
    std::int32_t step = 1;
    if (detail::is_deferring<Epilogue> && steps > 1) {
      before = multiply_next_piece(scratch, operands, place, sums, before);
      ++step;
    }
    deferred.template run<1>(epilogue, own);
    for (; step < steps; ++step) {
      before = multiply_next_piece(scratch, operands, place, sums, before);
    }
    await_multiply<0>(sums);
    release(scratch, before);
  }

  /// Of this warpgroup's rows of a and of b, in the first piece of the ring.
  struct operand_pair {
    matrix_descriptor a;
    matrix_descriptor b;
  };

  /// Starts to multiply the piece at `place` and moves on. Not `add`: the old sums count as zero.
  __device__ __forceinline__ static void multiply_piece(scratch_type& scratch, operand_pair operands, ring_place& place,
                                                        typename mma::sum_type (&sums)[mma::registers], bool add) {
    scratch.full[place.stage].wait(place.phase);
    begin_multiply();
    const matrix_descriptor a_piece = operands.a.further(place.stage * a_bytes);
    const matrix_descriptor b_piece = operands.b.further(place.stage * b_bytes);
#pragma unroll
    for (int bytes = 0; bytes < shape::depth_bytes; bytes += 32) {
      mma::multiply(sums, a_piece.further(bytes), b_piece.further(bytes), add || bytes != 0);
    }
    commit_multiply();
    place.advance();
  }

  /// The same after the first piece; gives back piece `before` and says which comes next.
  __device__ __forceinline__ static int multiply_next_piece(scratch_type& scratch, operand_pair operands,
                                                            ring_place& place,
                                                            typename mma::sum_type (&sums)[mma::registers], int before) {
    const int stage = place.stage;
    multiply_piece(scratch, operands, place, sums, true);
    await_multiply<1>();
    release(scratch, before);
    return stage;
  }

  /// To the producers of both blocks.
  __device__ __forceinline__ static void release(scratch_type& scratch, int stage) {
    const unsigned lane = threadIdx.x % 32;
    if (lane < shape::blocks) {
      scratch.empty[stage].arrive_at(lane);
    }
  }

  __device__ __forceinline__ static std::int32_t stride() {
    return static_cast<std::int32_t>(cluster_count());
  }
};

}  // namespace v0
}  // namespace tessera
