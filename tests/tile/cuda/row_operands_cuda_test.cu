// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/precision.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/cuda/row_operands.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

constexpr int row_numbers = 64;

/// Products of 16 rows with 8 columns, over 64 numbers; rows from `rows` on are none.
template <class T>
struct products_along_rows {
  static constexpr int lanes = 32;
  struct scratch_type {};
  T const* a;     ///< 16 x 64
  T const* b;     ///< 8 x 64
  int rows;       ///< the rows of a that there are
  float* sums;    ///< 16 x 8
  float* shared;  ///< of each lane the sum of the four lanes that have the same row

  template <class Group>
  __device__ void operator()(Group const& group, std::int64_t, scratch_type&) const {
    int const g = group.lane / 4;
    row_words<row_numbers> first;
    row_words<row_numbers> second;
    row_words<row_numbers> column;
    first.load(g < rows ? a + g * row_numbers : nullptr, group.lane);
    second.load(g + 8 < rows ? a + (g + 8) * row_numbers : nullptr, group.lane);
    column.load(b + g * row_numbers, group.lane);
    float four[4] = {0.0F, 0.0F, 0.0F, 0.0F};
    for (int block = 0; block < row_words<row_numbers>::blocks; ++block) {
      multiply_pieces<T>(four, first.words[block], second.words[block], column.words[block]);
    }
    for (int i = 0; i < 4; ++i) {
      sums[(g + i / 2 * 8) * 8 + 2 * (group.lane % 4) + i % 2] = four[i];
    }
    float const own = static_cast<float>(group.lane * 13 % 32);
    shared[group.lane] = sum_of_row(own);
  }
};

/// Products of 16 x 16 weights with 16 rows of 64 numbers, which are summed over.
template <class T>
struct products_over_rows {
  static constexpr int lanes = 32;
  struct scratch_type {};
  T const* weights;  ///< 16 x 16
  T const* rows;     ///< 16 x 64
  float* sums;       ///< 16 x 64

  template <class Group>
  __device__ void operator()(Group const& group, std::int64_t, scratch_type&) const {
    int const g = group.lane / 4;
    int const t = group.lane % 4;
    auto const pair_of = [&](int row, int column) {
      return weights[row * 16 + column].bits | std::uint32_t{weights[row * 16 + column + 1].bits} << 16;
    };
    std::uint32_t const words[4] = {pair_of(g, 2 * t), pair_of(g + 8, 2 * t), pair_of(g, 2 * t + 8),
                                    pair_of(g + 8, 2 * t + 8)};
    uint4 pieces[4];
    for (int which = 0; which < 4; ++which) {
      pieces[which] =
          *reinterpret_cast<uint4 const*>(rows + row_of_lane(group.lane, which) * row_numbers + piece_numbers * g);
    }
    float found[piece_numbers][4] = {};
    multiply_rows<T>(found, words, pieces);
    for (int tile = 0; tile < piece_numbers; ++tile) {
      for (int i = 0; i < 4; ++i) {
        sums[(g + i / 2 * 8) * row_numbers + number_of_column(tile, 2 * t + i % 2)] = found[tile][i];
      }
    }
  }
};

/// Whole numbers of at most 8, whose products and sums are exact.
template <class T>
std::vector<T> whole_numbers(std::size_t count, std::uint64_t seed) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = store<T>(static_cast<float>(testing::hash(seed, i) % 17) - 8.0F);
  }
  return values;
}

template <class T>
int wrong_products_along_rows(int rows) {
  auto const a = whole_numbers<T>(16 * row_numbers, 1);
  auto const b = whole_numbers<T>(8 * row_numbers, 2);
  device_values<T> const from_a(a);
  device_values<T> const from_b(b);
  device_values<float> const to(16 * 8);
  device_values<float> const shared(32);
  tessera::cuda const exec;
  exec.run(products_along_rows<T>{from_a.data(), from_b.data(), rows, to.data(), shared.data()}, 1);
  exec.wait();
  auto const found = to.download();
  auto const of_lanes = shared.download();
  int wrong = 0;
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 8; ++column) {
      float expected = 0.0F;
      for (std::size_t k = 0; k < row_numbers && static_cast<int>(row) < rows; ++k) {
        expected += load(a[row * row_numbers + k]) * load(b[column * row_numbers + k]);
      }
      wrong += found[row * 8 + column] == expected ? 0 : 1;
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    float sum = 0.0F;
    for (int other = lane / 4 * 4; other < lane / 4 * 4 + 4; ++other) {
      sum += static_cast<float>(other * 13 % 32);
    }
    wrong += of_lanes[static_cast<std::size_t>(lane)] == sum ? 0 : 1;
  }
  return wrong;
}

template <class T>
int wrong_products_over_rows() {
  auto const weights = whole_numbers<T>(16 * 16, 3);
  auto const rows = whole_numbers<T>(16 * row_numbers, 4);
  device_values<T> const from_weights(weights);
  device_values<T> const from_rows(rows);
  device_values<float> const to(16 * row_numbers);
  tessera::cuda const exec;
  exec.run(products_over_rows<T>{from_weights.data(), from_rows.data(), to.data()}, 1);
  exec.wait();
  auto const found = to.download();
  int wrong = 0;
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t number = 0; number < row_numbers; ++number) {
      float expected = 0.0F;
      for (std::size_t k = 0; k < 16; ++k) {
        expected += load(weights[row * 16 + k]) * load(rows[k * row_numbers + number]);
      }
      wrong += found[row * row_numbers + number] == expected ? 0 : 1;
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("products along rows that lanes load in pieces are exact, and rows that are not there are zeros", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(wrong_products_along_rows<bfloat16>(16) == 0);
  CHECK(wrong_products_along_rows<float16>(16) == 0);
  CHECK(wrong_products_along_rows<bfloat16>(11) == 0);
  CHECK(wrong_products_along_rows<bfloat16>(3) == 0);
}

TEST_CASE("products over rows that lanes load in pieces are exact", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(wrong_products_over_rows<bfloat16>() == 0);
  CHECK(wrong_products_over_rows<float16>() == 0);
}
