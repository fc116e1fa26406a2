// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/sm_90/register_budget.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace register_budget_test {  // not anonymous: for old architectures nothing refers to the program

static_assert(is_register_budget<24> && is_register_budget<240> && is_register_budget<256>);
static_assert(has_register_budgets(3, 24 + 2 * 240) && !has_register_budgets(3, 32 + 2 * 240));
static_assert(has_register_budgets(4, 32 + 3 * 160) && !has_register_budgets(4, 40 + 3 * 160));
static_assert(!is_register_budget<16> && !is_register_budget<264> && !is_register_budget<100>);

/// One warpgroup gives registers away, and two take them.
struct move_registers {
  static constexpr int lanes = 384;
  static constexpr int values = 128;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  struct scratch_type {};

  float const* from;  ///< `values` numbers
  float* to;          ///< of each lane

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t, scratch_type&) const {
    int const warpgroup = __shfl_sync(0xffffffffU, group.lane / 128, 0);
    float value = 0.0F;
    if (warpgroup == 0) {
      lower_registers<40>();
      value = static_cast<float>(group.lane);
    } else {
      raise_registers<232>();
#pragma unroll 1
      for (int i = 0; i < values; ++i) {
        value += from[i] * static_cast<float>(group.lane) * static_cast<float>(i % 3);
      }
    }
    __syncwarp();
    to[group.lane] = value;
  }
};

}  // namespace register_budget_test

using namespace register_budget_test;

TEST_CASE("warpgroups that took the registers of another compute as before", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::is_hopper()) {
    WARN("registers move on sm_90a alone");
    return;
  }
  std::vector<float> numbers(move_registers::values);
  float expected = 0.0F;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(i % 7);
    expected += numbers[i] * static_cast<float>(i % 3);
  }
  device_values<float> const from(numbers);
  device_values<float> const to(move_registers::lanes);
  tessera::cuda const exec;
  exec.run(move_registers{from.data(), to.data()}, 1);
  exec.wait();
  auto const found = to.download();
  int wrong = 0;
  for (std::size_t lane = 0; lane < found.size(); ++lane) {
    auto const number = static_cast<float>(lane);
    wrong += found[lane] == (lane < 128 ? number : expected * number) ? 0 : 1;
  }
  CHECK(wrong == 0);
}
