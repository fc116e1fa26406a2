// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/sm_90/cluster.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace cluster_test {  // not anonymous: for old architectures nothing refers to the program

/// Each block writes, waits for the other block of its cluster, and reads what that wrote, `turns` times.
struct exchange_in_cluster {
  static constexpr int lanes = 64;
  static constexpr int turns = 20;
  static constexpr int blocks_per_cluster = 2;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
  struct scratch_type {};

  std::int32_t volatile* written;  ///< blocks x lanes
  std::int32_t* sums;              ///< blocks x lanes
  std::int32_t* ranks;             ///< of each block

  __device__ void operator()(cuda_block<64> const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const other = which ^ 1;
    std::int32_t sum = 0;
    for (int turn = 0; turn < turns; ++turn) {
      written[which * lanes + group.lane] = static_cast<std::int32_t>(which + 1) * (turn + 1);
      arrive_at_cluster();
      sum += turn;  // work between the two
      wait_for_cluster();
      sum += written[other * lanes + lanes - 1 - group.lane];
      sync_cluster();
    }
    sums[which * lanes + group.lane] = sum;
    if (group.lane == 0) {
      ranks[which] = 1 + static_cast<std::int32_t>(rank_in_cluster());
    }
  }
};

/// The first block of each cluster sends numbers to both, `turns` times; both add them up.
struct send_in_cluster {
  static constexpr int lanes = 64;
  static constexpr int turns = 20;
  static constexpr int blocks_per_cluster = 2;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
  struct scratch_type {
    int4 words[turns];
    shared_barrier arrived;
  };

  int4* sums;  ///< of each block

  __device__ void operator()(cuda_block<64> const& group, std::int64_t which, scratch_type& scratch) const {
    if (group.lane == 0) {
      scratch.arrived.init(1);
      fence_barrier_init();
    }
    sync_cluster();
    int4 sum{0, 0, 0, 0};
    for (int turn = 0; turn < turns && group.lane == 0; ++turn) {
      scratch.arrived.arrive_and_expect(sizeof(int4));
      if (rank_in_cluster() == 0) {
        auto const first = static_cast<int>(which) + turn;
        for (unsigned rank = 0; rank < 2; ++rank) {
          send_to_block(rank, &scratch.words[turn], {first, 2 * first, 3 * first, static_cast<int>(rank)},
                        scratch.arrived);
        }
      }
      scratch.arrived.wait(static_cast<unsigned>(turn) % 2);
      int4 const got = scratch.words[turn];
      sum = {sum.x + got.x, sum.y + got.y, sum.z + got.z, sum.w + got.w};
    }
    if (group.lane == 0) {
      sums[which] = sum;
    }
    sync_cluster();
  }
};

}  // namespace cluster_test

using namespace cluster_test;

TEST_CASE("blocks of a cluster know their ranks and see what the other wrote before it arrived", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no clusters");
    return;
  }
  constexpr int blocks = 32;
  device_values<std::int32_t> const written(64 * blocks);
  device_values<std::int32_t> const sums(64 * blocks);
  device_values<std::int32_t> const ranks(blocks);
  tessera::cuda const exec;
  exec.run(exchange_in_cluster{written.data(), sums.data(), ranks.data()}, blocks);
  exec.wait();
  auto const found = sums.download();
  auto const found_ranks = ranks.download();
  int wrong = 0;
  for (int block = 0; block < blocks; ++block) {
    wrong += found_ranks[static_cast<std::size_t>(block)] == 1 + block % 2 ? 0 : 1;
    for (int lane = 0; lane < 64; ++lane) {
      std::int32_t const expected = 20 * 19 / 2 + ((block ^ 1) + 1) * (20 * 21 / 2);
      wrong += found[static_cast<std::size_t>(64 * block + lane)] == expected ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("words that a block sends to another one of its cluster arrive at its barrier", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no clusters");
    return;
  }
  constexpr int blocks = 32;
  constexpr int turns = send_in_cluster::turns;
  device_values<int4> const sums(blocks);
  tessera::cuda const exec;
  exec.run(send_in_cluster{sums.data()}, blocks);
  exec.wait();
  auto const found = sums.download();
  for (int block = 0; block < blocks; ++block) {
    int const expected = block / 2 * 2 * turns + turns * (turns - 1) / 2;
    int4 const& sum = found[static_cast<std::size_t>(block)];
    CHECK(sum.x == expected);
    CHECK(sum.y == 2 * expected);
    CHECK(sum.z == 3 * expected);
    CHECK(sum.w == block % 2 * turns);
  }
}
