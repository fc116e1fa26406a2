// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/sm_90/device_counter.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace device_counter_test {  // not anonymous: for old architectures nothing refers to the program

/// Each block takes a number, waits for all lower ones, and writes one more than the block before has written.
struct count_in_turn {
  static constexpr int lanes = 64;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
  struct scratch_type {
    std::int32_t number;
  };

  std::int32_t* counters;  ///< the next number, and how many blocks have written
  std::int32_t* values;    ///< lanes of blocks, in the order of their numbers

  __device__ void operator()(cuda_block<64> const& group, std::int64_t, scratch_type& scratch) const {
    if (group.lane == 0) {
      scratch.number = take_number(counters);
      await_counter(counters + 1, 2 * scratch.number);
    }
    group.sync();
    std::int32_t* const own = values + scratch.number * lanes;
    own[group.lane] = scratch.number == 0 ? 1 : own[group.lane - lanes] + 1;
    group.sync();
    if (group.lane == 0) {
      add_to_counter(counters + 1, 2);
    }
  }
};

}  // namespace device_counter_test

using namespace device_counter_test;

TEST_CASE("blocks that wait for lower numbers see what those have written", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the counters are for devices of compute capability 9.0 and later");
    return;
  }
  constexpr int blocks = 3000;
  device_values<std::int32_t> const counters(std::vector<std::int32_t>{0, 0});
  device_values<std::int32_t> const values(64 * blocks);
  tessera::cuda const exec;
  exec.run(count_in_turn{counters.data(), values.data()}, blocks);
  exec.wait();
  auto const found = values.download();
  int wrong = 0;
  for (int i = 0; i < 64 * blocks; ++i) {
    wrong += found[static_cast<std::size_t>(i)] == 1 + i / 64 ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(counters.download() == std::vector<std::int32_t>{blocks, 2 * blocks});
}
