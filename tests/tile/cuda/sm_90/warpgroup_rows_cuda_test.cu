// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The words for rows of wgmma's sums, against loops and against the operands of wgmma.
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_rows.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"
#include "tile/cuda/row_words_runs.cuh"

using namespace tessera;
using namespace tessera_test;

namespace warpgroup_rows_test {  // not anonymous: for old architectures nothing refers to pack_bytes

template <class Sum, int Rows, int Columns>
struct wgmma_words {
  template <class G>
  using of = warpgroup_rows<Sum, Columns, Rows, G>;
};

template <class Sum, int Rows, int Columns>
std::string wrong_words_of_wgmma() {
  return wrong_words_on_device<Sum, Rows, Columns, wgmma_words<Sum, Rows, Columns>,
                               wgmma_words<std::int32_t, Rows, Columns>, 128>();
}

/// Packs four sums as bytes.
struct pack_bytes {
  __device__ std::uint32_t operator()(std::int32_t a, std::int32_t b, std::int32_t c, std::int32_t d) const {
    return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | static_cast<std::uint32_t>(d & 255) << 24;
  }
};

/// sums x b^T by wgmma, where the left operand is made of sums in registers and b lies in shared memory, row after row
/// of 128 swizzled bytes; the sums are 64 x one such row.
template <class T>
struct product_of_sums {
  using mma = warpgroup_mma<T, 16>;
  using value_type = typename mma::operand_type;
  using sum_type = typename mma::sum_type;
  static constexpr bool is_byte = sizeof(value_type) == 1;
  static constexpr int depth = 128 / static_cast<int>(sizeof(value_type));
  using rows = warpgroup_rows<sum_type, depth>;
  static constexpr int lanes = 128;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  struct scratch_type {
    alignas(1024) value_type b[64 * depth];
  };
  matrix_view<sum_type const> sums;  ///< 64 x depth
  matrix_view<value_type const> b;   ///< 16 x depth
  matrix_view<sum_type> results;     ///< 64 x 16

  __device__ void operator()(cuda_block<128> const& group, std::int64_t, scratch_type& scratch) const {
    for (int i = group.lane; i < 16 * depth; i += lanes) {
      int const row = i / depth;
      int const byte = place_of(i % depth) * static_cast<int>(sizeof(value_type));
      scratch.b[(row * 128 + ((byte / 16 ^ row % 8) << 4) + byte % 16) / static_cast<int>(sizeof(value_type))] =
          b(row, i % depth);
    }
    fence_async_proxy();
    group.sync();
    auto const lane = warpgroup_lane::of_thread();
    typename rows::sum_tile tile;
#pragma unroll
    for (int first = 0; first < depth; first += 16) {
      warpgroup_rows<sum_type, 16>::each_with_row(
          lane, rows::template columns_of<16>(tile, first),
          [&](int row, int column, sum_type& sum) { sum = sums(row, first + column); });
    }
    std::uint32_t words[4][4];
    make<0>(lane, tile, words[0]);
    make<1>(lane, tile, words[1]);
    make<2>(lane, tile, words[2]);
    make<3>(lane, tile, words[3]);
    sum_type made[mma::registers];
    auto const at = matrix_descriptor::rows_of_128_bytes(
        static_cast<std::uint32_t>(__cvta_generic_to_shared(static_cast<void const*>(scratch.b))));
    pin_registers(words[0]);
    pin_registers(words[1]);
    pin_registers(words[2]);
    pin_registers(words[3]);
    begin_multiply(made);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      mma::multiply(made, words[step], at.further(32 * step), step != 0);
    }
    commit_multiply();
    await_multiply<0>(made);
    warpgroup_rows<sum_type, 16>::each_with_row(lane, made,
                                                [&](int row, int column, sum_type sum) { results(row, column) = sum; });
  }

 private:
  template <int Step>
  __device__ static void make(warpgroup_lane lane, typename rows::sum_tile const& tile, std::uint32_t (&words)[4]) {
    if constexpr (is_byte) {
      rows::template as_operand<mma, Step * mma::depth>(lane, tile, words, pack_bytes{});
    } else {
      rows::template as_operand<mma, Step * mma::depth>(lane, tile, words);
    }
  }
  /// Where a column lies among the depth: of sixteen bytes, columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 are neighbours.
  __device__ static int place_of(int column) {
    return is_byte ? column / 16 * 16 + column % 8 / 2 * 4 + column % 16 / 8 * 2 + column % 2 : column;
  }
};

template <class T>
int wrong_products() {
  using program = product_of_sums<T>;
  using sum_type = typename program::sum_type;
  using value_type = typename program::value_type;
  constexpr int depth = program::depth;
  auto const number = [](std::uint64_t seed, int i) {
    return static_cast<int>(testing::hash(seed, static_cast<std::uint64_t>(i)) % 7) - 3;
  };
  std::vector<sum_type> sums;
  std::vector<value_type> b;
  for (int i = 0; i < 64 * depth; ++i) {
    sums.push_back(static_cast<sum_type>(number(1, i)));
  }
  for (int i = 0; i < 16 * depth; ++i) {
    if constexpr (std::is_integral_v<value_type>) {
      b.push_back(static_cast<value_type>(number(2, i)));
    } else {
      b.push_back(store<value_type>(static_cast<float>(number(2, i))));
    }
  }
  cuda const exec;
  device_values<sum_type> const device_sums(sums);
  device_values<value_type> const device_b(b);
  device_values<sum_type> const results(64 * 16);
  exec.run(program{{device_sums.data(), {64, depth}}, {device_b.data(), {16, depth}}, {results.data(), {64, 16}}}, 1);
  auto const found = results.download();
  int wrong = 0;
  for (int i = 0; i < 64 * 16; ++i) {
    int expected = 0;
    for (int k = 0; k < depth; ++k) {
      expected += number(1, i / 16 * depth + k) * number(2, i % 16 * depth + k);
    }
    wrong += found[static_cast<std::size_t>(i)] == static_cast<sum_type>(expected) ? 0 : 1;
  }
  return wrong;
}

}  // namespace warpgroup_rows_test

using namespace warpgroup_rows_test;

TEST_CASE("every word for rows of wgmma gives what loops give, of NaN, infinity and rows of minus infinity, too",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(wrong_words_of_wgmma<float, 64, 8>().empty());
  CHECK(wrong_words_of_wgmma<float, 64, 16>().empty());
  CHECK(wrong_words_of_wgmma<float, 64, 80>().empty());
  CHECK(wrong_words_of_wgmma<float, 64, 128>().empty());
  CHECK(wrong_words_of_wgmma<float, 64, 256>().empty());
  CHECK(wrong_words_of_wgmma<float, 128, 64>().empty());
  CHECK(wrong_words_of_wgmma<std::int32_t, 64, 128>().empty());
  CHECK(wrong_words_of_wgmma<std::int32_t, 128, 24>().empty());
}

TEST_CASE("sums of wgmma become its left operand", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!is_hopper()) {
    TESSERA_SKIP("no device of sm_90");
  }
  CHECK(wrong_products<bfloat16>() == 0);
  CHECK(wrong_products<float16>() == 0);
  CHECK(wrong_products<std::int8_t>() == 0);
}
