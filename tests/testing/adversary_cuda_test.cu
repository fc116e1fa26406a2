// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One program on all three executors, from one source file.
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/concepts/executor.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;

static_assert(Executor<cuda>);
static_assert(Group<cuda_warp>);
static_assert(Group<cuda_block<128>>);
static_assert(MemoryResource<device_memory>);
static_assert(MemoryResource<pinned_memory>);
#if defined(__CUDA_ARCH_LIST__)
static_assert(std::is_same_v<cuda, basic_cuda<arch_list<__CUDA_ARCH_LIST__>>>);
#endif

namespace {

/// Moves the positive numbers of each tile to its front, keeps their order, and counts them.
template <int Lanes>
struct keep_positive {
  static constexpr int lanes = Lanes;
  struct scratch_type {
    int kept[lanes];
  };
  array_view<int const> numbers;
  array_view<int> kept;
  array_view<int> counts;
  status_word* status;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    per_lane<int, Group> position;
    for (int lane : group) {
      scratch.kept[lane] = 0;
      position[lane] = numbers[which * lanes + lane] > 0 ? 1 : 0;
    }
    group.sync();
    int const count = exclusive_sum(group, position);
    for (int lane : group) {
      int const number = numbers[which * lanes + lane];
      if (number > 0) {
        scratch.kept[position[lane]] = number;
      }
    }
    group.sync();
    for (int lane : group) {
      kept[which * lanes + lane] = scratch.kept[lane];
      if (is_first(lane)) {
        counts[which] = count;
      }
    }
    if (count == 0) {
      group.report(status, status_code::bad_value, which);
    }
  }
};

struct outcome {
  std::vector<int> kept;
  std::vector<int> counts;
  bool operator==(outcome const&) const = default;
};

template <int Lanes, Executor Exec>
outcome run_on(Exec const& exec, std::vector<int> const& numbers) {
  auto const tiles = static_cast<std::int64_t>(numbers.size()) / Lanes;
  buffer<int> input(exec, tiles * Lanes);
  buffer<int> kept(exec, tiles * Lanes);
  buffer<int> counts(exec, tiles);
  exec.copy(numbers, input);
  exec.run(keep_positive<Lanes>{input, kept, counts, exec.status()}, tiles);
  outcome found{std::vector<int>(numbers.size()), std::vector<int>(static_cast<std::size_t>(tiles))};
  exec.copy(kept, found.kept);
  exec.copy(counts, found.counts);
  exec.wait();
  return found;
}

std::vector<int> mixed_numbers() {
  std::vector<int> numbers(128 * 100);
  std::uint32_t state = 7;
  for (int& n : numbers) {
    state = state * 1664525u + 1013904223u;
    n = static_cast<int>(state >> 16) - 32768;
  }
  return numbers;
}

}  // namespace

TEST_CASE("the adversary agrees with the cpu in code that nvcc compiled", "[host]") {
  std::vector<int> const numbers = mixed_numbers();
  CHECK(run_on<32>(testing::adversary{.seed = 3}, numbers) == run_on<32>(cpu{.threads = 2}, numbers));
  CHECK(run_on<128>(testing::adversary{.seed = 3}, numbers) == run_on<128>(cpu{.threads = 2}, numbers));
  CHECK_THROWS_AS(run_on<32>(cpu{}, std::vector<int>(32, -1)), value_error);
}

TEST_CASE("the device agrees with the cpu and the adversary", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  std::vector<int> const numbers = mixed_numbers();
  CHECK(run_on<32>(cuda{}, numbers) == run_on<32>(testing::adversary{}, numbers));
  CHECK(run_on<128>(cuda{}, numbers) == run_on<128>(cpu{}, numbers));
  CHECK_THROWS_AS(run_on<32>(cuda{}, std::vector<int>(32, -1)), value_error);
}
