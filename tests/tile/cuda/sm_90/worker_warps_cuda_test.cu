// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/worker_warps.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace worker_warps_test {  // not anonymous: for old architectures nothing refers to the program

constexpr int stages = 3;
constexpr int workers = 2;
constexpr int steps = 50;

/// A warp loads 32 numbers in each step; each worker adds up all of them, and the workers exchange their sums.
struct add_steps {
  using block_warps = worker_warps<workers>;
  static constexpr int lanes = block_warps::lanes;
  static constexpr bool waits_for_stream = true;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
  struct scratch_type {
    std::int32_t numbers[stages][32];
    std::int32_t sums[workers][32];
    shared_barrier full[stages];
    shared_barrier empty[stages];
  };

  std::int32_t const* from;  ///< blocks x steps x 32
  std::int32_t* to;          ///< blocks x workers x 32: of each worker the sums that the other one made
  int readers;               ///< lanes that release a stage; 0: one of them for all

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t which, scratch_type& scratch) const {
    auto const own = block_warps::of(group);
    own.begin([&] {
      for (int stage = 0; stage < stages; ++stage) {
        scratch.full[stage].init(32);
        scratch.empty[stage].init(workers * (readers > 0 ? readers : 1));
      }
      fence_barrier_init();
    });
    pipeline_state<stages> state;
    if (own.warp == workers) {
      for (int step = 0; step < steps; ++step) {
        scratch.empty[state.stage].wait(state.phase ^ 1U);
        scratch.numbers[state.stage][own.lane] = from[(which * steps + step) * 32 + own.lane];
        scratch.full[state.stage].arrive();
        state.advance();
      }
      return;
    }
    block_warps::wait_for_barriers();
    std::int32_t sum = 0;
    for (int step = 0; step < steps; ++step) {
      scratch.full[state.stage].wait(state.phase);
      sum += scratch.numbers[state.stage][31 - own.lane] * (own.warp + 1);
      if (readers > 0) {
        block_warps::release(scratch.empty[state.stage], own.lane, readers);
      } else {
        block_warps::release(scratch.empty[state.stage], own.lane);
      }
      state.advance();
    }
    scratch.sums[own.warp][own.lane] = sum;
    block_warps::sync();
    to[(which * workers + own.warp) * 32 + own.lane] = scratch.sums[1 - own.warp][own.lane];
  }
};

}  // namespace worker_warps_test

using namespace worker_warps_test;

TEST_CASE("workers get the numbers that another warp loads, and meet each other", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no barriers for copies");
    return;
  }
  constexpr std::size_t blocks = 7;
  std::vector<std::int32_t> numbers(blocks * steps * 32);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<std::int32_t>(i * 2654435761U % 1000);
  }
  std::vector<std::int32_t> expected(blocks * workers * 32);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    std::size_t const lane = i % 32;
    std::size_t const other = 1 - i / 32 % workers;
    std::size_t const block = i / 32 / workers;
    for (std::size_t step = 0; step < steps; ++step) {
      expected[i] += numbers[(block * steps + step) * 32 + 31 - lane] * static_cast<std::int32_t>(other + 1);
    }
  }
  tessera::cuda const exec;
  device_values<std::int32_t> const from(numbers);
  for (int const readers : {0, 32}) {
    CAPTURE(readers);
    device_values<std::int32_t> const to(expected.size());
    exec.run(add_steps{from.data(), to.data(), readers}, static_cast<std::int64_t>(blocks));
    exec.wait();
    CHECK(to.download() == expected);
  }
}
