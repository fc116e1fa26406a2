// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_turns.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace warpgroup_turns_test {  // not anonymous: for old architectures nothing refers to the programs

constexpr int warpgroup = 128;

/// A number that grows by one with each call. One lane of a warp calls it.
__device__ inline int next_ticket(int& tickets) {
  return atomicAdd(&tickets, 1);
}

/// Delays some warps in some turns, so that others are ahead.
__device__ inline void delay(int turn, int lane) {
  if ((turn * 5 + lane / 32) % 3 == 0) {
    __nanosleep(500);
  }
}

/// Warpgroups take turns, the last of which some may not have. A warp writes the ticket that it draws in each.
template <int Warpgroups, bool IsNamed>
struct take_turns {
  static constexpr int lanes = warpgroup * Warpgroups;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
  using named = named_turns<Warpgroups, 3>;
  struct scratch_type {
    warpgroup_turns<Warpgroups> turns;
    int tickets;
  };

  int count;     ///< of turns
  int* tickets;  ///< turns x 4 warps

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t, scratch_type& scratch) const {
    int const which = group.lane / warpgroup;
    if (group.lane == 0) {
      scratch.tickets = 0;
      scratch.turns.init();
      fence_barrier_init();
    }
    group.sync();
    if constexpr (IsNamed) {
      named::begin(which);
    }
    int round = 0;
    for (int turn = which; turn < count; turn += Warpgroups) {
      if constexpr (IsNamed) {
        named::take(which);
      } else {
        scratch.turns.take(which, round++);
      }
      if (group.lane % 32 == 0) {
        tickets[turn * 4 + group.lane / 32 % 4] = next_ticket(scratch.tickets);
      }
      delay(turn, group.lane);
      __syncwarp();
      if constexpr (IsNamed) {
        named::pass(which);
      } else {
        scratch.turns.pass(which);
      }
      delay(turn + 1, group.lane);
    }
    if constexpr (IsNamed) {
      named::end(which);
    }
  }
};

template <int Warpgroups, bool IsNamed = false>
void check_turns(int count) {
  CAPTURE(Warpgroups, IsNamed, count);
  tessera::cuda const exec;
  device_values<int> const tickets(std::vector<int>(static_cast<std::size_t>(4 * count + 1), -1));
  exec.run(take_turns<Warpgroups, IsNamed>{count, tickets.data()}, 1);
  exec.wait();
  std::vector<int> const drawn = tickets.download();
  bool all_in_order = true;
  for (int i = 0; i < 4 * count; ++i) {
    all_in_order =
        all_in_order && drawn[static_cast<std::size_t>(i)] / 4 == i / 4 && drawn[static_cast<std::size_t>(i)] >= 0;
  }
  CHECK(all_in_order);
}

/// What a warp has seen in a step.
struct seen_step {
  int ticket;
  int value;
  int adds;
};

/// Two warpgroups read rows of steps in turns, from a ring that a warp fills. Turn number t has 1 + t % most steps.
template <int Stages>
struct read_in_turns {
  static constexpr int lanes = 2 * warpgroup + 32;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
  struct scratch_type {
    stage_ring<Stages> ring;
    int value[Stages];
    warpgroup_turns<2> turns;
    int tickets;
  };

  int count;        ///< of turns
  int most;         ///< steps of a turn
  seen_step* seen;  ///< turns x most x 4 warps

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t, scratch_type& scratch) const {
    if (group.lane == 0) {
      scratch.tickets = 0;
      scratch.ring.init(1, warpgroup);
      scratch.turns.init();
      fence_barrier_init();
    }
    group.sync();
    pipeline_state<Stages> state;
    int const which = group.lane / warpgroup;
    if (which < 2) {
      if (which == 1) {
        state.skip(steps_of(0));
      }
      for (int turn = which; turn < count; turn += 2) {
        scratch.turns.take(which, turn / 2);
        ring_reader const reads(scratch.ring, state, release_for_lane{});
        multiply_in_turn(reads, scratch.turns, which, steps_of(turn),
                         [&](pipeline_step const& at, bool adds) { see(scratch, group.lane, turn, at, adds); });
        state.skip(steps_of(turn + 1));
        delay(turn + 1, group.lane);
      }
    } else if (group.lane == 2 * warpgroup) {
      for (int turn = 0; turn < count; ++turn) {
        for (auto const at : pipelined(ring_filler(state), steps_of(turn))) {
          shared_barrier& full = at.when_empty(scratch.ring);
          scratch.value[at.stage] = turn * most + at.index;
          full.arrive();
        }
      }
    }
  }

 private:
  __device__ int steps_of(int turn) const { return turn < count ? 1 + turn % most : 0; }

  __device__ void see(scratch_type& scratch, int lane, int turn, pipeline_step const& at, bool adds) const {
    int const value = scratch.value[at.stage];
    if (lane % 32 == 0) {
      seen[(turn * most + at.index) * 4 + lane / 32 % 4] = {next_ticket(scratch.tickets), value, adds ? 1 : 0};
    }
    delay(turn + at.index, lane);
  }
};

/// Whether each step saw its value, and all steps of a turn but the last came before all of the next turn.
inline bool came_in_turns(std::vector<seen_step> const& seen, int count, int most) {
  int last = -1;  // the last ticket before the turn
  for (int turn = 0; turn < count; ++turn) {
    int const steps = 1 + turn % most;
    int last_of_turn = last;
    for (int i = 0; i < 4 * steps; ++i) {
      int const step = i / 4;
      seen_step const& at = seen[static_cast<std::size_t>((turn * most + step) * 4 + i % 4)];
      if (at.value != turn * most + step || at.adds != (step > 0 ? 1 : 0) || at.ticket <= last) {
        return false;
      }
      last_of_turn = step < steps - 1 ? std::max(last_of_turn, at.ticket) : last_of_turn;
    }
    last = last_of_turn;
  }
  return true;
}

template <int Stages>
void check_steps(int count, int most) {
  CAPTURE(Stages, count, most);
  tessera::cuda const exec;
  device_values<seen_step> const seen(static_cast<std::size_t>(4 * count * most + 1));
  exec.run(read_in_turns<Stages>{count, most, seen.data()}, 1);
  exec.wait();
  CHECK(came_in_turns(seen.download(), count, most));
}

}  // namespace warpgroup_turns_test

TEST_CASE("a turn begins when all warps of the warpgroup before have passed theirs", "[cuda]") {
  using namespace warpgroup_turns_test;
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no barriers for copies");
    return;
  }
  for (int const count : {0, 1, 2, 3, 4, 5, 6, 7, 99, 100, 101}) {
    check_turns<2>(count);
    check_turns<3>(count);
    check_turns<7>(count);
  }
}

TEST_CASE("so does a turn by named barriers", "[cuda]") {
  using namespace warpgroup_turns_test;
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no barriers for copies");
    return;
  }
  for (int const rounds : {0, 1, 2, 3, 40}) {
    check_turns<2, true>(2 * rounds);
    check_turns<3, true>(3 * rounds);
    check_turns<7, true>(7 * rounds);
  }
}

TEST_CASE("a turn of steps is passed when the last one's stage is full", "[cuda]") {
  using namespace warpgroup_turns_test;
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no barriers for copies");
    return;
  }
  for (int const count : {0, 1, 2, 3, 4, 31, 32}) {
    for (int const most : {1, 2, 5, 7}) {
      check_steps<1>(count, most);
      check_steps<2>(count, most);
      check_steps<4>(count, most);
    }
  }
}
