// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;

namespace cuda_launch_test {

/// Counts how often it is called with each number.
template <int Blocks, bool Persistent>
struct counted_calls {
  static constexpr int lanes = 64;
  static constexpr int blocks_per_cluster = Blocks;
  static constexpr bool is_persistent = Persistent;
  struct scratch_type {};
  array_view<std::int32_t> calls;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      if (lane == 0) {
        group.atomic_add(calls[which], 1);
      }
    }
  }
};

/// A program for an architecture that does not exist.
struct for_nothing : counted_calls<1, false> {
  static constexpr int from_architecture = 1;
  static constexpr int before_architecture = 2;
};

template <class Program>
std::vector<std::int32_t> calls_of(tessera::cuda const& exec, std::int64_t count) {
  std::vector<std::int32_t> calls(8);
  buffer<std::int32_t> on_device(exec, 8);
  exec.clear(on_device);
  exec.run(Program{on_device.view()}, count);
  exec.copy(on_device, calls);
  exec.wait();
  return calls;
}

}  // namespace cuda_launch_test

using namespace cuda_launch_test;

TEST_CASE("a persistent program is called once by each thread block", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  CHECK(calls_of<counted_calls<1, true>>(exec, 3) == std::vector<std::int32_t>{1, 1, 1, 0, 0, 0, 0, 0});
}

TEST_CASE("all thread blocks of a cluster come to the program", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no clusters");
    return;
  }
  CHECK(calls_of<counted_calls<2, false>>(exec, 3) == std::vector<std::int32_t>{1, 1, 1, 1, 0, 0, 0, 0});
  CHECK(calls_of<counted_calls<4, true>>(exec, 5) == std::vector<std::int32_t>{1, 1, 1, 1, 1, 1, 1, 1});
}

TEST_CASE("an executor knows whether a program was compiled for its device", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  CHECK(exec.has<counted_calls<1, false>>());
  CHECK(!exec.has<for_nothing>());
}

TEST_CASE("a program that was not compiled for the device is refused and not passed over", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  buffer<std::int32_t> on_device(exec, 8);
  std::string message;
  try {
    exec.run(for_nothing{on_device.view()}, 3);
  } catch (device_error const& problem) {
    message = problem.what();
  }
  CHECK_THAT(message, tessera_test::contains("for_nothing is for architectures from 1 to below 2 but device "));
  CHECK_THAT(message, tessera_test::contains(join(" has architecture ", exec.state->architecture(), " and ")));
  exec.wait();  // nothing was launched and nothing is wrong
  CHECK(calls_of<counted_calls<1, true>>(exec, 1) == std::vector<std::int32_t>{1, 0, 0, 0, 0, 0, 0, 0});
}
