// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `warpgroup_turns<Warpgroups>`: turns in which warpgroups use what serves one of them at a time, such as tensor cores
/// (sm_90): while one multiplies, the others are in their epilogues.
///
///     warpgroup_turns<2> turns;                    // in scratch; one thread calls turns.init(), then fences
///     // warpgroup `which`, for its tile number `round`:
///     turns.take(which, round);
///     product_reader reads(ring, state, release_for_warp{});
///     multiply_in_turn(reads, turns, which, steps, [&](pipeline_step const& at, bool adds) {
///       multiply_stage(at.stage, sums, adds);      // begins products of wgmma, and commits them
///     });                                          // the turn is passed when the last stage is full
///     reads.finish(sums);
///     write(sums);                                 // beside the next warpgroup's products
///
/// A turn without steps is passed by turns.pass(which). Each warp takes and passes by itself, so that the warps of a
/// warpgroup need not meet.
///
/// `named_turns<Warpgroups, FirstBarrier>` are turns by the block's named barriers, without memory, for warpgroups that
/// all have as many turns. All lanes take and pass, and the warps of a warpgroup meet where it takes.
///
///     using turns = named_turns<2, 1>;             // named barriers 1 and 2
///     turns::begin(which);                         // before the first turn
///     turns::take(which);                          // any number of times, the same for all warpgroups
///     start_products();
///     turns::pass(which);
///     turns::end(which);                           // behind the last turn
///
/// Speed of the forward and the backward pass of losses of 8192 tokens by these words, relative to turns by hand, in
/// turns on an H200; results have the same bits (loss_gradient_parts makes gradients in 10 MiB):
///
///     vocabulary x channels                    128256 x 4096     256000 x 2304     32768 x 4096
///     exact, gradients in fp32, 10 MiB         1.01  1.01        1.00   .99        1.00  1.00
///     exact, gradients in fp32, 48 MiB         1.00  1.00
///     exact, gradients in bf16, 160 MiB        1.00   .99        1.00   .99
///     with cut_cross_entropy's filter          1.00  1.00
///
/// Machine code of dense_attention, whose turns are named ones, is that of turns by hand.
///
/// Laws: turns come in the order of warpgroups, from 0 on, again and again; a turn begins when all warps of the
/// warpgroup before have passed theirs. Turns order when warps go on, and not memory: what a turn writes need not be
/// seen in the next.
#pragma once

#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/thread_index.cuh>

namespace tessera {
inline namespace v0 {

template <int Warpgroups>
struct warpgroup_turns {
  static_assert(Warpgroups >= 2, "tessera: at least two warpgroups take turns");

  shared_barrier begins[Warpgroups];  ///< completes when a turn of the warpgroup begins, but for warpgroup 0's first

  /// Makes the turns ready. One thread, before fence_barrier_init().
  __device__ __forceinline__ void init() {
    for (shared_barrier& turn : begins) {
      turn.init(4);  // one arrival of each warp
    }
  }
  /// Waits for a turn of a warpgroup, of which it has had `round` before.
  __device__ __forceinline__ void take(int which, int round) {
    begins[which].wait(static_cast<unsigned>(round + (which == 0 ? 1 : 0)) % 2);
  }
  /// Passes the turn to the next warpgroup.
  __device__ __forceinline__ void pass(int which) {
    if (thread_index() % 32 == 0) {
      begins[which + 1 == Warpgroups ? 0 : which + 1].arrive();
    }
  }
};

/// Turns by the named barriers from FirstBarrier on, one for each warpgroup.
template <int Warpgroups, int FirstBarrier>
struct named_turns {
  static_assert(Warpgroups >= 2 && FirstBarrier >= 1 && FirstBarrier + Warpgroups <= 16,
                "tessera: named_turns has a named barrier, 1 to 15, for each of at least two warpgroups");

  /// Begins the turns. All lanes of all warpgroups.
  __device__ __forceinline__ static void begin(int which) {
    if (which == 0) {
      arrive_named(FirstBarrier, lanes);
    }
  }
  /// Waits for a turn of a warpgroup.
  __device__ __forceinline__ static void take(int which) { sync_named(FirstBarrier + which, lanes); }
  /// Passes the turn to the next warpgroup.
  __device__ __forceinline__ static void pass(int which) {
    arrive_named(FirstBarrier + (which + 1 == Warpgroups ? 0 : which + 1), lanes);
  }
  /// Ends the turns: waits until the last warpgroup has passed its last, so that none is left at a barrier.
  __device__ __forceinline__ static void end(int which) {
    if (which == 0) {
      take(which);
    }
  }

 private:
  static constexpr int lanes = 2 * 128;  ///< of the warpgroup that passes a turn, and of that which takes it
};

/// Multiplies a row of steps, at least one, in a turn of a warpgroup, which is passed when the last step's stage is
/// full: the next warpgroup's first products wait behind this one's last, so that tensor cores are idle no longer than
/// between steps. Reader: a product_reader. multiply(step, whether it adds to the sums): begins products, and commits
/// them.
template <class Reader, int Warpgroups, class Multiply>
__device__ __forceinline__ void multiply_in_turn(Reader& reads, warpgroup_turns<Warpgroups>& turns, int which,
                                                 int steps, Multiply const& multiply) {
  for (pipeline_step const at : pipelined(reads, {0, 1})) {
    if (steps == 1) {
      turns.pass(which);
    }
    multiply(at, false);
  }
  for (pipeline_step const at : pipelined(reads, {1, steps})) {
    if (at.index == steps - 1) {
      turns.pass(which);
    }
    multiply(at, true);
  }
}

}  // namespace v0
}  // namespace tessera
