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

}  // namespace

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
