// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>

#include <tessera/entropy/block_normalizer.hpp>
#include <tessera/quantize/keep_mantissa.hpp>
#include <tessera/testing/generators.hpp>

#include "quantize/kept_reference.hpp"
#include "support/catch.hpp"

using namespace tessera;
using tessera_test::format;

namespace {

/// The relative error of the largest weight of a block after its own normalizer and K mantissa bits.
template <class T, int K>
double error_of_largest(std::uint32_t bits) {
  using keep = keep_mantissa<K>;
  using reducer = block_normalizer<T>;
  std::uint32_t const normalizer = reducer::normalizer(reducer::push(reducer::identity(), bits));
  kept_value const kept = keep::template quantize_normalized<T>(bits, normalizer);
  auto const before = static_cast<double>(format<T>::value_of(bits));
  auto const after = static_cast<double>(format<T>::value_of(keep::template restore_normalized<T>(kept, normalizer)));
  return std::fabs(after - before) / std::fabs(before);
}

}  // namespace

TEST_CASE("the state is the largest finite magnitude, in whatever order values come", "[host]") {
  using reducer = block_normalizer<bfloat16>;
  std::uint32_t values[] = {0x3f80, 0xc040, 0x7f80, 0xff80, 0x7fc1, 0x0001, 0x8000, 0x4030};
  std::uint32_t forward = reducer::identity();
  std::uint32_t backward = reducer::identity();
  for (int i = 0; i < 8; ++i) {
    forward = reducer::push(forward, values[i]);
    backward = reducer::push(backward, values[7 - i]);
  }
  CHECK(forward == 0x4040);
  CHECK(backward == 0x4040);
  CHECK(reducer::merge(reducer::push(0, values[0]), reducer::push(0, values[1])) == 0x4040);
  CHECK(reducer::merge(reducer::identity(), 0x4040) == 0x4040);
  CHECK(reducer::push(reducer::identity(), 0x7fff) == reducer::identity());
}

TEST_CASE("the normalizer is the largest magnitude's mantissa in 256ths, rounded half up, at most 255", "[host]") {
  CHECK(block_normalizer<bfloat16>::normalizer(0x3f80) == 0);
  CHECK(block_normalizer<bfloat16>::normalizer(0x3fff) == 254);
  CHECK(block_normalizer<bfloat16>::normalizer(0x007f) == 0);  // subnormal
  CHECK(block_normalizer<float16>::normalizer(0x3c01) == 0);
  CHECK(block_normalizer<float16>::normalizer(0x3c02) == 1);  // 2 / 1024: half of a 256th
  CHECK(block_normalizer<float16>::normalizer(0x3fff) == 255);
  CHECK(block_normalizer<float>::normalizer(0x3f803fff) == 0);
  CHECK(block_normalizer<float>::normalizer(0x3f804000) == 1);
  CHECK(block_normalizer<float>::normalizer(0x3fffffff) == 255);
}

TEST_CASE("the largest bf16 weight of a block survives exactly, however few bits are kept", "[host]") {
  int changed = 0;
  for (std::uint32_t bits = 0x0080; bits < 0x7f80; ++bits) {
    changed += error_of_largest<bfloat16, 0>(bits) == 0 ? 0 : 1;
    changed += error_of_largest<bfloat16, 3>(bits) == 0 ? 0 : 1;
  }
  CHECK(changed == 0);
}

TEST_CASE("the largest fp16 or fp32 weight of a block keeps nine bits, however few are kept of the others", "[host]") {
  double largest = 0;
  for (std::uint32_t bits = 0x0400; bits < 0x7c00; ++bits) {
    largest = std::fmax(largest, error_of_largest<float16, 0>(bits));
  }
  CHECK(largest <= std::exp2(-9));
  largest = 0;
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    std::uint32_t const bits = 0x00800000 + testing::uniform_bits{}.value(1, i) % 0x7f000000u;
    largest = std::fmax(largest, error_of_largest<float, 1>(bits));
  }
  CHECK(largest <= std::exp2(-9));
}

TEST_CASE("dividing by the normalizer turns no weight of the block into something larger than the largest", "[host]") {
  using reducer = block_normalizer<bfloat16>;
  using keep = keep_mantissa<0>;
  for (std::uint32_t largest = 0x3f80; largest < 0x4000; ++largest) {
    std::uint32_t const normalizer = reducer::normalizer(largest);
    for (std::uint32_t bits = 0x3e80; bits <= largest; bits += 3) {
      std::uint32_t const back =
          keep::restore_normalized<bfloat16>(keep::quantize_normalized<bfloat16>(bits, normalizer), normalizer);
      REQUIRE(back <= largest);
    }
  }
}
