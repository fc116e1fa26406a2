// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/widen_exactly.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;

namespace {

/// Widens words: the first 256 have the same byte everywhere.
template <class Value, int Bits>
struct widen_words {
  static constexpr int lanes = 32;
  static constexpr int count = 16 / Bits;
  struct scratch_type {};
  array_view<std::uint32_t> pairs;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const i = which * lanes + lane;
      std::uint32_t found[count];
      widen_exactly<Value, Bits>(group, word(i), found);
      for (int k = 0; k < count; ++k) {
        pairs[count * i + k] = found[k];
      }
    }
  }
  TESSERA_FN static std::uint32_t word(std::int64_t i) {
    return i < 256 ? static_cast<std::uint32_t>(i) * 0x01010101U
                   : static_cast<std::uint32_t>(testing::hash(1, static_cast<std::uint64_t>(i)));
  }
};

template <class Value, int Bits>
int wrong_pairs() {
  using program = widen_words<Value, Bits>;
  constexpr std::int64_t words = 4096;
  cuda const exec;
  buffer<std::uint32_t> pairs(exec, words * program::count);
  exec.run(program{pairs.view()}, words / program::lanes);
  std::vector<std::uint32_t> found(static_cast<std::size_t>(words * program::count));
  exec.copy(pairs, found);
  exec.wait();
  int wrong = 0;
  for (std::int64_t i = 0; i < words; ++i) {
    std::uint32_t expected[program::count];
    widen_exactly<Value, Bits>(serial_group<1>{}, program::word(i), expected);
    for (int k = 0; k < program::count; ++k) {
      wrong += found[static_cast<std::size_t>(program::count * i + k)] == expected[k] ? 0 : 1;
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("a GPU widens exact codes to the same bits as the CPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(wrong_pairs<bfloat16, 4>() == 0);
  CHECK(wrong_pairs<float16, 4>() == 0);
  CHECK(wrong_pairs<bfloat16, 8>() == 0);
  CHECK(wrong_pairs<float16, 8>() == 0);
}
