// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace barrier_test {  // not anonymous: for old architectures nothing refers to the programs

struct of_sm_90 {
  static constexpr int lanes = 96;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
};

/// What lane 0 sees of a barrier for `arrivals` arrivals before and after each way to arrive.
struct watch_phases : of_sm_90 {
  struct scratch_type {
    shared_barrier barrier;
  };
  std::int32_t* notes;

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t, scratch_type& scratch) const {
    int const warp = group.lane / 32;
    if (group.lane == 0) {
      scratch.barrier.init(3);
      fence_barrier_init();
      notes[0] = scratch.barrier.has_ended(1) ? 1 : 0;         // a new barrier: the phase before has ended
      notes[1] = scratch.barrier.has_ended_by_now(0) ? 1 : 0;  // and its own has not
      scratch.barrier.arrive();
      scratch.barrier.arrive_after(-1.0F);
      notes[2] = scratch.barrier.has_ended_by_now(0) ? 1 : 0;
      scratch.barrier.arrive_after(1.0F);
      notes[3] = scratch.barrier.has_ended_by_now(0) ? 1 : 0;
      notes[4] = scratch.barrier.has_ended_by_now(1) ? 1 : 0;
    }
    group.sync();
    scratch.barrier.wait(0);
    if (warp < 2) {
      scratch.barrier.arrive_for_warp();
    }
    group.sync();
    if (group.lane == 0) {
      notes[5] = scratch.barrier.has_ended_by_now(1) ? 1 : 0;  // two of three have arrived: one for each warp
      scratch.barrier.arrive_and_expect(0);
      notes[6] = scratch.barrier.has_ended(1) ? 1 : 0;
      notes[7] = scratch.barrier.has_ended_by_now(0) ? 1 : 0;
    }
    group.sync();
  }
};

/// The last warp produces numbers, the others add them up, over and over at the same address.
struct hand_over : of_sm_90 {
  static constexpr int steps = 64;
  struct scratch_type {
    std::int32_t value;
    shared_barrier full;
    shared_barrier empty;
  };
  std::int32_t* sums;  ///< of each lane that adds

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t, scratch_type& scratch) const {
    if (group.lane == 0) {
      scratch.full.init(1);
      scratch.empty.init(64);
      fence_barrier_init();
    }
    group.sync();
    std::int32_t sum = 0;
    for (int step = 0; step < steps; ++step) {
      unsigned const phase = static_cast<unsigned>(step % 2);
      if (group.lane == 64) {
        scratch.empty.wait(phase ^ 1U);
        scratch.value = (step + 1) * (step + 1);
        scratch.full.arrive();
      } else if (group.lane < 64) {
        scratch.full.wait(phase);
        sum += scratch.value;
        scratch.empty.arrive();
      }
    }
    if (group.lane < 64) {
      sums[group.lane] = sum;
    }
  }
};

/// The last warp's lanes copy numbers asynchronously, over and over to the same addresses; the others add up what is
/// there once all copies have arrived.
struct hand_over_copies : of_sm_90 {
  static constexpr int steps = 64;
  struct scratch_type {
    std::int32_t values[32];
    shared_barrier full;
    shared_barrier empty;
  };
  std::int32_t const* from;  ///< 32 for each step
  std::int32_t* sums;        ///< of each lane that adds

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t, scratch_type& scratch) const {
    if (group.lane == 0) {
      scratch.full.init(32);
      scratch.empty.init(64);
      fence_barrier_init();
    }
    group.sync();
    std::int32_t sum = 0;
    for (int step = 0; step < steps; ++step) {
      unsigned const phase = static_cast<unsigned>(step % 2);
      if (group.lane >= 64) {
        scratch.empty.wait(phase ^ 1U);
        async_copy<4>(&scratch.values[group.lane - 64], from + 32 * step + group.lane - 64);
        scratch.full.arrive_after_copies();
      } else {
        scratch.full.wait(phase);
        std::int32_t const value = scratch.values[31 - group.lane % 32];
        sum += value;
        scratch.empty.arrive_at_after(0, static_cast<float>(value));  // a block alone is its cluster
      }
    }
    if (group.lane < 64) {
      sums[group.lane] = sum;
    }
  }
};

/// Two warps wait at a named barrier for what a third has written, which does not wait for them.
struct meet_by_name : of_sm_90 {
  struct scratch_type {
    std::int32_t values[32];
  };
  std::int32_t* seen;  ///< of the 64 lanes that wait

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t, scratch_type& scratch) const {
    if (group.lane < 32) {
      scratch.values[group.lane] = 100 + group.lane;
      arrive_named(3, lanes);
    } else {
      sync_named(3, lanes);
      std::int32_t const value = scratch.values[31 - group.lane % 32];
      sync_named(4, 64);
      seen[group.lane - 32] = value;
    }
  }
};

}  // namespace barrier_test

using namespace barrier_test;

TEST_CASE("a phase of a barrier ends with the last arrival and none before", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no barriers for copies");
    return;
  }
  device_values<std::int32_t> const notes(8);
  tessera::cuda const exec;
  exec.run(watch_phases{{}, notes.data()}, 1);
  exec.wait();
  CHECK(notes.download() == std::vector<std::int32_t>{1, 0, 0, 1, 0, 0, 1, 0});
}

TEST_CASE("a producer and its consumers hand a buffer over by two barriers", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no barriers for copies");
    return;
  }
  device_values<std::int32_t> const sums(64);
  tessera::cuda const exec;
  exec.run(hand_over{{}, sums.data()}, 1);
  exec.wait();
  CHECK(sums.download() == std::vector<std::int32_t>(64, 64 * 65 * 129 / 6));
}

TEST_CASE("warps wait at a named barrier for one that only arrives", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the program is for sm_90");
    return;
  }
  device_values<std::int32_t> const seen(64);
  tessera::cuda const exec;
  exec.run(meet_by_name{{}, seen.data()}, 1);
  exec.wait();
  std::vector<std::int32_t> expected;
  for (int lane = 0; lane < 64; ++lane) {
    expected.push_back(100 + 31 - lane % 32);
  }
  CHECK(seen.download() == expected);
}

TEST_CASE("a barrier counts a thread's asynchronous copies as one arrival", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the program is for sm_90");
    return;
  }
  std::vector<std::int32_t> values;
  for (std::int32_t i = 0; i < 32 * hand_over_copies::steps; ++i) {
    values.push_back(i * 7919 % 1009 - 500);
  }
  device_values<std::int32_t> const from(values);
  device_values<std::int32_t> const sums(64);
  tessera::cuda const exec;
  exec.run(hand_over_copies{{}, from.data(), sums.data()}, 1);
  exec.wait();
  std::vector<std::int32_t> expected(64);
  for (std::size_t lane = 0; lane < 64; ++lane) {
    for (std::size_t step = 0; step < hand_over_copies::steps; ++step) {
      expected[lane] += values[32 * step + 31 - lane % 32];
    }
  }
  CHECK(sums.download() == expected);
}
