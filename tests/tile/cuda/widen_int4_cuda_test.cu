// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/precision.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/cuda/widen_int4.cuh>
#include <tessera/tile/serial/group.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;

namespace {

struct widen_words {
  static constexpr int lanes = 32;
  struct scratch_type {};
  array_view<tile_chunk<bfloat16>> values;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const i = which * lanes + lane;
      values[i] = widen_int4(group, word(i));
    }
  }
  TESSERA_FN static std::uint32_t word(std::int64_t i) {
    return static_cast<std::uint32_t>(testing::hash(1, static_cast<std::uint64_t>(i)));
  }
};

}  // namespace

TEST_CASE("a GPU widens 4-bit codes to the same bits as the CPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  constexpr std::int64_t count = 4096;
  buffer<tile_chunk<bfloat16>> values(exec, count);
  exec.run(widen_words{values.view()}, count / widen_words::lanes);
  std::vector<tile_chunk<bfloat16>> found(count);
  exec.copy(values, found);
  exec.wait();
  int wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    auto const expected = widen_int4(serial_group<1>{}, widen_words::word(static_cast<std::int64_t>(i)));
    for (int k = 0; k < 8; ++k) {
      wrong += to_bits(found[i].values[k]) == to_bits(expected.values[k]) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}
