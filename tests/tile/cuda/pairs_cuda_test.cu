// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/precision.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/cuda/pairs.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace pairs_test {  // not anonymous: for old architectures nothing refers to larger_integers

__host__ __device__ inline std::uint32_t word_at(std::uint64_t seed, std::int64_t i) {
  return static_cast<std::uint32_t>(testing::hash(seed, static_cast<std::uint64_t>(i)));
}

/// Of random words: products, smaller and larger halves, and the transposes of a warp's words.
struct pairs_of_halves {
  static constexpr int lanes = 32;
  struct scratch_type {};
  std::uint32_t* results;  ///< four for each lane

  template <class Group>
  __device__ void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const i = which * lanes + group.lane;
    std::uint32_t const a = word_at(1, i);
    std::uint32_t const b = word_at(2, i);
    results[4 * i] = multiply_pairs(a, b);
    results[4 * i + 1] = minimum_f16x2(a, b);
    results[4 * i + 2] = maximum_f16x2(a, b);
    results[4 * i + 3] = transposed_matrix(a);
  }
};

/// Of integers in pairs a * b + c: of bf16 and of fp16, which hold them exactly.
struct sums_of_products {
  static constexpr int lanes = 32;
  struct scratch_type {};
  std::uint32_t* results;  ///< two for each lane

  /// Three small integers for each lane and half.
  __host__ __device__ static int operand(int which, std::int64_t i, int half) {
    return static_cast<int>(word_at(static_cast<std::uint64_t>(which), 2 * i + half) % 15U) - 7;
  }
  template <class T>
  __host__ __device__ static std::uint32_t pair(int which, std::int64_t i) {
    return std::uint32_t{store<T>(static_cast<float>(operand(which, i, 0))).bits} |
           std::uint32_t{store<T>(static_cast<float>(operand(which, i, 1))).bits} << 16;
  }
  template <class Group>
  __device__ void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const i = which * lanes + group.lane;
    results[2 * i] = multiply_add_bf16x2(pair<bfloat16>(1, i), pair<bfloat16>(2, i), pair<bfloat16>(3, i));
    results[2 * i + 1] = multiply_add_f16x2(pair<float16>(1, i), pair<float16>(2, i), pair<float16>(3, i));
  }
};

constexpr std::uint32_t magnitudes = 0x7fff7fffU;

struct larger_magnitudes {
  static constexpr int lanes = 32;
  struct scratch_type {};
  std::uint32_t* results;

  template <class Group>
  __device__ void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const i = which * lanes + group.lane;
    results[i] = larger_magnitudes_f16x2(word_at(1, i) & magnitudes, word_at(2, i) & magnitudes);
  }
};

inline double half_value(std::uint32_t word, int half) {
  return static_cast<double>(load(float16{static_cast<std::uint16_t>(word >> (16 * half))}));
}

/// Whether two halves have the same bits, any NaN being like any other.
inline bool is_same_half(std::uint32_t a, std::uint32_t b, int half) {
  double const x = half_value(a, half);
  double const y = half_value(b, half);
  return (std::isnan(x) && std::isnan(y)) || (x == y && std::signbit(x) == std::signbit(y));
}

constexpr std::int64_t pair_tiles = 512;

}  // namespace pairs_test

using namespace pairs_test;

TEST_CASE("pairs of halves are multiplied with one rounding and compared without NaNs", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  device_values<std::uint32_t> const results(4 * 32 * pair_tiles);
  tessera::cuda const exec;
  exec.run(pairs_of_halves{results.data()}, pair_tiles);
  exec.wait();
  auto const found = results.download();
  int wrong_products = 0;
  int wrong_extremes = 0;
  for (std::int64_t i = 0; i < 32 * pair_tiles; ++i) {
    std::uint32_t const a = word_at(1, i);
    std::uint32_t const b = word_at(2, i);
    std::uint32_t const* const own = found.data() + 4 * i;
    for (int half = 0; half < 2; ++half) {
      double const x = half_value(a, half);
      double const y = half_value(b, half);
      // The product of two halves is exact in fp32, so that store() rounds it once.
      std::uint32_t const product = std::uint32_t{store<float16>(static_cast<float>(x * y)).bits} << (16 * half);
      wrong_products += is_same_half(own[0], product, half) ? 0 : 1;
      bool const both_nan = std::isnan(x) && std::isnan(y);
      double const smaller = half_value(own[1], half);
      double const larger = half_value(own[2], half);
      wrong_extremes += (both_nan ? std::isnan(smaller) : smaller == std::fmin(x, y)) ? 0 : 1;
      wrong_extremes += (both_nan ? std::isnan(larger) : larger == std::fmax(x, y)) ? 0 : 1;
    }
  }
  CHECK(wrong_products == 0);
  CHECK(wrong_extremes == 0);
}

TEST_CASE("products of pairs and what is added to them are summed half by half", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  device_values<std::uint32_t> const results(2 * 32 * pair_tiles);
  tessera::cuda const exec;
  exec.run(sums_of_products{results.data()}, pair_tiles);
  exec.wait();
  auto const found = results.download();
  int wrong = 0;
  for (std::int64_t i = 0; i < 32 * pair_tiles; ++i) {
    for (int half = 0; half < 2; ++half) {
      using program = sums_of_products;
      auto const sum = static_cast<float>(program::operand(1, i, half) * program::operand(2, i, half) +
                                          program::operand(3, i, half));
      auto const as_bf16 = static_cast<std::uint16_t>(found[static_cast<std::size_t>(2 * i)] >> (16 * half));
      auto const as_fp16 = static_cast<std::uint16_t>(found[static_cast<std::size_t>(2 * i + 1)] >> (16 * half));
      wrong += load(bfloat16{as_bf16}) == sum && load(float16{as_fp16}) == sum ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("a warp transposes 8 x 8 elements of 16 bits", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  device_values<std::uint32_t> const results(4 * 32 * pair_tiles);
  tessera::cuda const exec;
  exec.run(pairs_of_halves{results.data()}, pair_tiles);
  exec.wait();
  auto const found = results.download();
  int wrong = 0;
  for (std::int64_t tile = 0; tile < pair_tiles; ++tile) {
    for (int row = 0; row < 8; ++row) {
      for (int column = 0; column < 8; ++column) {
        std::uint32_t const got = found[static_cast<std::size_t>(4 * (tile * 32 + 4 * row + column / 2) + 3)];
        std::uint32_t const from = word_at(1, tile * 32 + 4 * column + row / 2);
        wrong += (got >> (16 * (column % 2)) & 0xffffU) == (from >> (16 * (row % 2)) & 0xffffU) ? 0 : 1;
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("the larger magnitudes of pairs are found half by half, and NaNs are larger than all", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  device_values<std::uint32_t> const results(32 * pair_tiles);
  tessera::cuda const exec;
  exec.run(larger_magnitudes{results.data()}, pair_tiles);
  exec.wait();
  auto const found = results.download();
  constexpr std::uint32_t infinity = 0x7c00;
  int wrong = 0;
  for (std::int64_t i = 0; i < 32 * pair_tiles; ++i) {
    for (int half = 0; half < 2; ++half) {
      auto const of = [half](std::uint32_t word) { return (word & magnitudes) >> (16 * half) & 0xffffU; };
      std::uint32_t const larger = std::max(of(word_at(1, i)), of(word_at(2, i)));
      std::uint32_t const own = of(found[static_cast<std::size_t>(i)]);
      wrong += own == larger || (own > infinity && larger > infinity) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}
