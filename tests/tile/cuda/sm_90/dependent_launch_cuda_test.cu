// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/sm_90/dependent_launch.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

/// Copies a list, turned by a tile and an element, plus one: a launch reads what other blocks of the one before wrote.
struct turn_list {
  static constexpr int lanes = 128;
  static constexpr bool waits_for_stream = true;
  struct scratch_type {};

  std::int32_t const* from;
  std::int32_t* to;
  std::int64_t count;

  template <class Group>
  __device__ void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    let_next_kernel_start();
    wait_for_stream();
    std::int64_t const index = which * lanes + group.lane;
    to[index] = 1 + from[(index + lanes + 1) % count];
  }
};

__device__ __forceinline__ std::uint64_t nanoseconds() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

/// Lets the next kernel start at once, runs for 200 microseconds, and writes down when its last lane ended.
struct slow_ending {
  static constexpr int lanes = 32;
  static constexpr bool waits_for_stream = true;
  struct scratch_type {};

  unsigned long long* end;

  template <class Group>
  __device__ void operator()(Group const&, std::int64_t, scratch_type&) const {
    let_next_kernel_start();
    wait_for_stream();
    std::uint64_t const begin = nanoseconds();
    while (nanoseconds() - begin < 200'000) {
    }
    atomicMax(end, static_cast<unsigned long long>(nanoseconds()));
  }
};

/// Writes down when its first lane started, before it waits for the kernel before it.
template <bool Early>
struct noted_start {
  static constexpr int lanes = 32;
  static constexpr bool waits_for_stream = true;
  static constexpr bool starts_early = Early;
  struct scratch_type {};

  unsigned long long* start;

  template <class Group>
  __device__ void operator()(Group const&, std::int64_t, scratch_type&) const {
    atomicMin(start, static_cast<unsigned long long>(nanoseconds()));
    wait_for_stream();
  }
};

/// How often, of 20 times, a program starts before the one before it has ended.
template <bool Early>
int count_early_starts() {
  tessera::cuda const exec;
  int early = 0;
  for (int i = 0; i <= 20; ++i) {
    device_values<unsigned long long> const end(std::vector<unsigned long long>{0});
    device_values<unsigned long long> const start(std::vector<unsigned long long>{~0ULL});
    exec.run(slow_ending{end.data()}, 4);
    exec.run(noted_start<Early>{start.data()}, 4);
    exec.wait();
    bool const is_first = i == 0;  // the runtime then loads the second program for longer than the first one runs
    early += !is_first && start.download()[0] < end.download()[0] ? 1 : 0;
  }
  return early;
}

}  // namespace

TEST_CASE("a program that does not start early starts when the one before it has ended", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (count_early_starts<true>() == 0) {
    TESSERA_SKIP("no program starts early here: the device is older than sm_90, or a tool lets launches run in turn");
  }
  CHECK(count_early_starts<false>() == 0);
}

TEST_CASE("kernels that overlap see all of what the kernels before them wrote", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  constexpr std::int64_t tiles = 300;
  constexpr std::int64_t count = tiles * turn_list::lanes;
  constexpr int launches = 200;
  std::vector<std::int32_t> values(count);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int32_t>(1000 * i);
  }
  device_values<std::int32_t> const first(values);
  device_values<std::int32_t> const second(values.size());
  tessera::cuda const exec;
  std::int32_t* from = first.data();
  std::int32_t* to = second.data();
  for (int launch = 0; launch < launches; ++launch) {
    exec.run(turn_list{from, to, count}, tiles);
    std::swap(from, to);
  }
  exec.wait();
  auto const found = first.download();  // the number of launches is even
  int wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    auto const source = (i + std::size_t{launches} * (turn_list::lanes + 1)) % static_cast<std::size_t>(count);
    wrong += found[i] == values[source] + launches ? 0 : 1;
  }
  CHECK(wrong == 0);
}
