// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/group.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;

namespace {

/// Every collective at once: what it writes depends on each of them.
template <int Lanes>
struct collectives {
  static constexpr int lanes = Lanes;
  struct scratch_type {
    std::int32_t reversed[Lanes];
  };
  array_view<float const> values;
  array_view<float> floats;
  array_view<std::int64_t> integers;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    per_lane<float, Group> mine;
    per_lane<std::int32_t, Group> scaled;
    per_lane<bool, Group> positive;
    for (int lane : group) {
      mine[lane] = values[which * lanes + lane];
      scaled[lane] = static_cast<std::int32_t>(mine[lane] * 1000.0f);
      positive[lane] = mine[lane] > 0.0f;
      scratch.reversed[lanes - 1 - lane] = scaled[lane];
    }
    group.sync();
    float const float_sum = sum(group, mine);
    float const float_extent = maximum(group, mine) - minimum(group, mine);
    float const third = broadcast(group, mine, 3);
    std::int64_t const integer_sum = sum(group, scaled);
    std::int64_t const integer_extent = static_cast<std::int64_t>(maximum(group, scaled)) - minimum(group, scaled);
    std::int64_t bits = (any(group, positive) ? 2 : 0) + (all(group, positive) ? 1 : 0);
    if constexpr (Lanes == 32) {
      bits = bits * 1000 + count_below(group, ballot(group, positive), 17);
    }
    std::int64_t const total = exclusive_sum(group, scaled);
    for (int lane : group) {
      floats[which * lanes + lane] = lane % 3 == 0 ? float_sum : lane % 3 == 1 ? float_extent : third;
      integers[which * lanes + lane] =
          scaled[lane] + 3 * scratch.reversed[lane] + 7 * integer_sum + 11 * integer_extent + 13 * bits + 17 * total;
    }
  }
};

template <int Lanes>
void compare_collectives() {
  constexpr std::int64_t tiles = 301;
  std::vector<float> values(static_cast<std::size_t>(tiles * Lanes));
  std::uint32_t state = 1;
  for (float& v : values) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
  }
  std::vector<float> floats(values.size());
  std::vector<std::int64_t> integers(values.size());
  cpu{.threads = 2}.run(collectives<Lanes>{values, floats, integers}, tiles);

  cuda const exec;
  buffer<float> const device_values = [&] {
    buffer<float> copy(exec, static_cast<std::int64_t>(values.size()));
    exec.copy(values, copy);
    return copy;
  }();
  buffer<float> device_floats(exec, device_values.size());
  buffer<std::int64_t> device_integers(exec, device_values.size());
  exec.run(collectives<Lanes>{device_values, device_floats, device_integers}, tiles);
  std::vector<float> found_floats(values.size());
  std::vector<std::int64_t> found_integers(values.size());
  exec.copy(device_floats, found_floats);
  exec.copy(device_integers, found_integers);
  exec.wait();
  CHECK(found_floats == floats);
  CHECK(found_integers == integers);
}

}  // namespace

TEST_CASE("collectives of a warp agree with the serial ones to the last bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  compare_collectives<32>();
}

TEST_CASE("collectives of a block agree with the serial ones to the last bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  compare_collectives<64>();
  compare_collectives<256>();
  compare_collectives<1024>();
}
