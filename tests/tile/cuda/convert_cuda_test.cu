// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/testing/generators.hpp>
#include <tessera/tile/cuda/convert.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

/// Counts of what differs from load() and store(), by function.
enum converted {
  bf16_packed,
  fp16_packed,
  bf16_unpacked,
  fp16_unpacked,
  e4m3_packed,
  e4m3_unpacked,
  e5m2_unpacked,
  e4m3_widened,
  e5m2_widened,
  bytes_widened,
  conversions
};

/// Floats of all kinds: for four in five any bits, else a value of fp16 or beside it, so that ties are met.
__device__ float any_float(std::uint64_t i) {
  auto const bits = static_cast<std::uint32_t>(testing::hash(21, i));
  if (i % 5 != 0) {
    return __uint_as_float(bits);
  }
  return __uint_as_float((bits & 0xfffff000U) + static_cast<std::uint32_t>(i / 5 % 3) - 1U);
}

__device__ bool is_same_float(float a, float b) {
  return __float_as_uint(a) == __float_as_uint(b) || (a != a && b != b);
}

/// Whether the fp16 number `index` of two pairs, times a unit, is a value.
__device__ bool is_half(uint2 pairs, int index, float unit, float value) {
  std::uint32_t const word = index < 2 ? pairs.x : pairs.y;
  return is_same_float(load(float16{static_cast<std::uint16_t>(word >> 16 * (index % 2))}) * unit, value);
}

/// Whether four codes are as pairs what `value` says of each.
template <class Code, class Value>
__device__ bool is_widened(std::uint32_t four, Value const& value) {
  uint2 const pairs = widened_pairs<Code>::of(four);
  bool is_right = true;
  for (int index = 0; index < 4; ++index) {
    is_right = is_right && is_half(pairs, index, widened_pairs<Code>::unit(), value(four >> 8 * index & 0xffU));
  }
  return is_right;
}

__global__ void count_wrong_conversions(std::uint64_t floats, std::int32_t* wrong) {
  std::uint64_t const step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < floats; i += step) {
    float const a = any_float(4 * i);
    float const b = any_float(4 * i + 1);
    float const c = any_float(4 * i + 2);
    float const d = any_float(4 * i + 3);
    std::uint32_t const bf16 = store<bfloat16>(a).bits | std::uint32_t{store<bfloat16>(b).bits} << 16;
    std::uint32_t const fp16 = store<float16>(a).bits | std::uint32_t{store<float16>(b).bits} << 16;
    std::uint32_t const e4m3 = store<float8_e4m3>(a).bits | std::uint32_t{store<float8_e4m3>(b).bits} << 8 |
                               std::uint32_t{store<float8_e4m3>(c).bits} << 16 |
                               std::uint32_t{store<float8_e4m3>(d).bits} << 24;
    if (pack_pair<bfloat16>(a, b) != bf16) {
      atomicAdd(wrong + bf16_packed, 1);
    }
    if (pack_pair<float16>(a, b) != fp16) {
      atomicAdd(wrong + fp16_packed, 1);
    }
    if (pack_four_e4m3(a, b, c, d) != e4m3) {
      atomicAdd(wrong + e4m3_packed, 1);
    }
    if (i < 0x10000) {
      auto const low = static_cast<std::uint16_t>(i);
      auto const high = static_cast<std::uint16_t>(~i * 7);
      std::uint32_t const pair = low | std::uint32_t{high} << 16;
      float2 const of_bf16 = unpack_pair<bfloat16>(pair);
      float2 const of_fp16 = unpack_pair<float16>(pair);
      bool const bf16_right =
          is_same_float(of_bf16.x, load(bfloat16{low})) && is_same_float(of_bf16.y, load(bfloat16{high}));
      bool const fp16_right =
          is_same_float(of_fp16.x, load(float16{low})) && is_same_float(of_fp16.y, load(float16{high}));
      uint2 const halves = unpack_four_e4m3(pair);
      bool e4m3_right = true;
      for (int index = 0; index < 4; ++index) {
        std::uint32_t const word = index < 2 ? halves.x : halves.y;
        float16 const half{static_cast<std::uint16_t>(word >> 16 * (index % 2))};
        float8_e4m3 const code{static_cast<std::uint8_t>(pair >> 8 * index)};
        e4m3_right = e4m3_right && is_same_float(load(half), load(code));
      }
      atomicAdd(wrong + bf16_unpacked, bf16_right ? 0 : 1);
      atomicAdd(wrong + fp16_unpacked, fp16_right ? 0 : 1);
      atomicAdd(wrong + e4m3_unpacked, e4m3_right ? 0 : 1);
      auto const of_e4m3 = [](std::uint32_t bits) { return load(float8_e4m3{static_cast<std::uint8_t>(bits)}); };
      auto const of_e5m2 = [](std::uint32_t bits) { return load(float8_e5m2{static_cast<std::uint8_t>(bits)}); };
      auto const of_byte = [](std::uint32_t bits) { return static_cast<float>(static_cast<std::int8_t>(bits)); };
      uint2 const wide = unpack_four_e5m2(pair);
      for (int index = 0; index < 4; ++index) {
        atomicAdd(wrong + e5m2_unpacked, is_half(wide, index, 1.0F, of_e5m2(pair >> 8 * index & 0xffU)) ? 0 : 1);
      }
      std::uint32_t const nan = ((pair & 0x7f7f7f7fU) + 0x01010101U) & 0x80808080U;
      atomicAdd(wrong + e4m3_widened, nan != 0 || is_widened<float8_e4m3>(pair, of_e4m3) ? 0 : 1);
      atomicAdd(wrong + e5m2_widened, is_widened<float8_e5m2>(pair, of_e5m2) ? 0 : 1);
      atomicAdd(wrong + bytes_widened, is_widened<std::int8_t>(pair, of_byte) ? 0 : 1);
    }
  }
}

__global__ void pack_integers(float const* from, std::uint32_t* to, int words) {
  for (int i = static_cast<int>(threadIdx.x); i < words; i += static_cast<int>(blockDim.x)) {
    to[i] = pack_four_integers(from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]);
  }
}

}  // namespace

TEST_CASE("instructions that convert give the bits of load and store", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  device_values<std::int32_t> const wrong(conversions);
  count_wrong_conversions<<<256, 256>>>(std::uint64_t{1} << 22, wrong.data());
  CHECK(wrong.download() == std::vector<std::int32_t>(conversions, 0));
}

TEST_CASE("four floats become the nearest bytes, ties to even and within their limits", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  std::vector<float> values{0.5F,   1.5F,  2.5F,  254.5F, 255.5F,    255.49F,    256.0F,        -0.5F,
                            -0.51F, -1.0F, 1e30F, -1e30F, HUGE_VALF, -HUGE_VALF, std::nanf(""), 127.0F};
  for (std::uint64_t i = values.size(); i < 4096; ++i) {
    values.push_back(300.0F * testing::gauss{}.value(9, i));
  }
  device_values<float> const from(values);
  device_values<std::uint32_t> const to(values.size() / 4);
  pack_integers<<<1, 128>>>(from.data(), to.data(), static_cast<int>(values.size() / 4));
  auto const found = to.download();
  int wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    double const exact = std::isnan(values[i]) ? 0.0 : std::nearbyint(static_cast<double>(values[i]));
    double const expected = exact < 0.0 ? 0.0 : exact > 255.0 ? 255.0 : exact;
    wrong += (found[i / 4] >> (8 * (i % 4)) & 0xffU) == static_cast<std::uint32_t>(expected) ? 0 : 1;
  }
  CHECK(wrong == 0);
}
