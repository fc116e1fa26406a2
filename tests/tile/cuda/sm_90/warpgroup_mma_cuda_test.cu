// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/exec/cuda.cuh>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/reference.hpp>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

/// Where element `inner` of row `row` of a box of rows of 128 bytes lies, in elements, as the copy engine would put it.
template <class T>
__device__ int swizzled(int row, int inner) {
  int const chunk = inner * static_cast<int>(sizeof(T)) / 16;
  int const in_chunk = inner % (16 / static_cast<int>(sizeof(T)));
  return (row * 128 + ((chunk ^ (row % 8)) << 4)) / static_cast<int>(sizeof(T)) + in_chunk;
}

/// Whether a comes from registers.
enum class a_from { shared, registers };

/// sums = a * b, a 64 x depth, b depth x Columns; both as rows of 128 bytes, along the depth or across it.
template <class T, int Columns, operand_order A, operand_order B, a_from From>
struct one_multiplication {
  using mma = std::conditional_t<From == a_from::shared, warpgroup_mma<T, Columns, A, B>,
                                 warpgroup_mma<T, Columns, operand_order::along_depth, B>>;
  using value_type = typename gemm_operand<T>::value_type;
  using sum_type = typename mma::sum_type;
  static constexpr int lanes = 128;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  static constexpr int in_row = 128 / static_cast<int>(sizeof(value_type));
  static constexpr int depth = in_row;  // four steps
  struct scratch_type {
    alignas(1024) value_type a[64 * in_row];
    alignas(1024) value_type b[(Columns < 64 ? 64 : Columns) * in_row];
  };

  value_type const* a;  ///< 64 x depth
  value_type const* b;  ///< Columns x depth
  sum_type* sums;       ///< 64 x Columns

  __device__ void operator()(cuda_block<128> const& group, std::int64_t, scratch_type& scratch) const {
    fill<A>(group.lane, scratch.a, a, 64);
    fill<B>(group.lane, scratch.b, b, Columns);
    fence_async_proxy();
    group.sync();
    sum_type registers[mma::registers];
    begin_multiply(registers);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      matrix_descriptor const b_step = piece<B>(scratch.b, step);
      if constexpr (From == a_from::registers) {
        std::uint32_t words[4];
        load_words(group.lane, step, words);
        pin_registers(words);
        begin_multiply();
        mma::multiply(registers, words, b_step, step != 0);
        commit_multiply();
        await_multiply<0>(registers);
      } else {
        mma::multiply(registers, piece<A>(scratch.a, step), b_step, step != 0);
      }
    }
    commit_multiply();
    await_multiply<0>(registers);
#pragma unroll
    for (int i = 0; i < mma::registers; ++i) {
      int const row = group.lane / 32 * 16 + group.lane % 32 / 4 + i / 2 % 2 * 8;
      int const column = i / 4 * 8 + group.lane % 4 * 2 + i % 2;
      sums[row * Columns + column] = registers[i];
    }
  }

 private:
  /// Across the depth a box has 64 elements of the other extent to a row, and a row for each index of the depth.
  template <operand_order Order>
  __device__ static void fill(int lane, value_type* to, value_type const* from, int extent) {
    for (int i = lane; i < extent * depth; i += lanes) {
      int const outer = i / depth;
      int const k = i % depth;
      if constexpr (Order == operand_order::along_depth) {
        to[swizzled<value_type>(outer, k)] = from[i];
      } else {
        to[outer / 64 * 64 * depth + swizzled<value_type>(k, outer % 64)] = from[i];
      }
    }
  }
  /// 32 bytes of depth along it; across it 16 rows of 128 bytes.
  template <operand_order Order>
  __device__ static matrix_descriptor piece(value_type const* tile, int step) {
    auto const address = static_cast<std::uint32_t>(__cvta_generic_to_shared(tile));
    if constexpr (Order == operand_order::along_depth) {
      return matrix_descriptor::rows_of_128_bytes(address).further(32 * step);
    } else {
      return matrix_descriptor::with_strides(address, 128 * depth, 1024).further(16 * 128 * step);
    }
  }
  __device__ void load_words(int lane, int step, std::uint32_t (&words)[4]) const {
    constexpr int in_word = 4 / static_cast<int>(sizeof(value_type));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int const row = lane / 32 * 16 + lane % 32 / 4 + i % 2 * 8;
      int const k = step * mma::depth + lane % 4 * in_word + i / 2 * 4 * in_word;
      memcpy(&words[i], a + row * depth + k, 4);
    }
  }
};

template <class T>
T whole_number(double number) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(number);
  } else {
    return store<T>(static_cast<float>(number));
  }
}

template <class T, int Columns, operand_order A = operand_order::along_depth,
          operand_order B = operand_order::along_depth, a_from From = a_from::shared>
void check_product() {
  using program = one_multiplication<T, Columns, A, B, From>;
  using value = typename program::value_type;
  CAPTURE(Columns, static_cast<int>(A), static_cast<int>(B), static_cast<int>(From));
  tessera::cuda const exec;
  if (!exec.has<program>()) {
    WARN("not compiled for this device");
    return;
  }
  std::vector<double> a(64 * program::depth);
  std::vector<double> b(static_cast<std::size_t>(program::depth) * Columns);
  std::vector<value> a_values(a.size());
  std::vector<value> b_values(b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<double>(testing::hash(1, i) % 7) - 3;
    a_values[i] = whole_number<value>(a[i]);
  }
  for (std::size_t i = 0; i < b.size(); ++i) {
    b[i] = static_cast<double>(testing::hash(2, i) % 7) - 3;
    b_values[i % Columns * program::depth + i / Columns] = whole_number<value>(b[i]);
  }
  device_values<value> const device_a(a_values);
  device_values<value> const device_b(b_values);
  device_values<typename program::sum_type> const sums(64 * Columns);
  exec.run(program{device_a.data(), device_b.data(), sums.data()}, 1);
  auto const product = testing::reference_multiply(a, b, 64, Columns, program::depth);
  auto const found = sums.download();
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    wrong += static_cast<double>(found[i]) == product[i] ? 0 : 1;
  }
  CHECK(wrong == 0);
}

constexpr operand_order along = operand_order::along_depth;
constexpr operand_order across = operand_order::across_depth;

}  // namespace

TEST_CASE("a warpgroup multiplies by any of its numbers of columns", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_product<bfloat16, 8>();
  check_product<bfloat16, 16>();
  check_product<bfloat16, 32>();
  check_product<bfloat16, 80>();
  check_product<bfloat16, 96>();
  check_product<bfloat16, 128>();
  check_product<bfloat16, 160>();
  check_product<bfloat16, 192>();
  check_product<bfloat16, 256>();
}

TEST_CASE("a warpgroup multiplies operands of every type", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_product<float16, 64>();
  check_product<tf32, 64>();
  check_product<float8_e4m3, 64>();
  check_product<float8_e5m2, 64>();
  check_product<std::int8_t, 64>();
}

TEST_CASE("a warpgroup takes a from registers", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_product<bfloat16, 64, along, along, a_from::registers>();
  check_product<bfloat16, 256, along, across, a_from::registers>();
  check_product<float8_e4m3, 128, along, along, a_from::registers>();
  check_product<std::int8_t, 8, along, along, a_from::registers>();
  check_product<tf32, 16, along, along, a_from::registers>();
}

TEST_CASE("a warpgroup takes operands of 16 bits that lie across the depth", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_product<bfloat16, 64, across, along>();
  check_product<bfloat16, 256, along, across>();
  check_product<float16, 128, across, across>();
}
