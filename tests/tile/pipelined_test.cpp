// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/tile/copies_in_flight.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/pipelined.hpp>
#include <tessera/view/array_view.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Adds up a list, 32 numbers a step, which each lane reads from another lane's copy.
template <int Stages>
struct pipelined_sum {
  static constexpr int lanes = 32;
  struct scratch_type {
    alignas(16) tile_chunk<float> chunks[Stages][8];
  };
  array_view<float const> numbers;
  array_view<float> sums;          ///< of each lane
  array_view<std::int32_t> order;  ///< steps in the order in which they ran

  template <class G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type& scratch) const {
    per_lane<float, G> sum;
    for (int lane : group) {
      sum[lane] = 0.0F;
    }
    auto const begin = [&](int step, int stage) {
      for (int lane : group) {
        if (lane < 8) {
          auto const* const from = reinterpret_cast<tile_chunk<float> const*>(numbers.data + 32 * step + 4 * lane);
          copies_in_flight<G>::begin(scratch.chunks[stage][lane], from, step % 5 != 3);
        }
      }
    };
    for (pipeline_step const at : pipelined<Stages>(group, static_cast<int>(numbers.size() / 32), begin)) {
      for (int lane : group) {
        int const other = 31 - lane;
        sum[lane] += scratch.chunks[at.stage][other / 4].values[other % 4];
        if (is_first(lane)) {
          order[at.index] = at.index;
        }
      }
    }
    for (int lane : group) {
      sums[lane] = sum[lane];
    }
  }
};

template <int Stages, class Exec>
void check_sum(Exec const& exec, int steps) {
  CAPTURE(Stages, steps);
  std::vector<float> numbers;
  std::vector<float> expected(32, 0.0F);
  for (int i = 0; i < 32 * steps; ++i) {
    numbers.push_back(static_cast<float>(i * 7 % 23));
    if (i / 32 % 5 != 3) {
      expected[static_cast<std::size_t>(31 - i % 32)] += numbers.back();
    }
  }
  std::vector<float> sums(32, -1.0F);
  std::vector<std::int32_t> order(static_cast<std::size_t>(steps), -1);
  exec.run(pipelined_sum<Stages>{{numbers}, {sums}, {order}}, 1);
  CHECK(sums == expected);
  for (int i = 0; i < steps; ++i) {
    CHECK(order[static_cast<std::size_t>(i)] == i);
  }
}

}  // namespace

TEST_CASE("a pipelined loop runs its steps in order, each with its own stage's data", "[host]") {
  for (int const steps : {0, 1, 2, 3, 4, 5, 11}) {
    check_sum<2>(cpu{.threads = 1}, steps);
    check_sum<4>(cpu{.threads = 1}, steps);
    check_sum<2>(testing::adversary{.seed = 3}, steps);
    check_sum<3>(testing::adversary{.seed = 4}, steps);
    check_sum<4>(testing::adversary{.seed = 5}, steps);
  }
}
