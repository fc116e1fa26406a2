// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/core/bits.hpp>
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

}  // namespace

namespace products_of_two_shapes {

/// Sums of products of codes that begin at the bits of sums of products of bfloat16, whose operands have rows of 16
/// bytes: two halves of the depth on the left, one for both on the right. Three warpgroups do so many times at once, so
/// that they share the tensor cores.
struct two_shapes {
  using first_mma = warpgroup_mma<bfloat16, 128>;
  using second_mma = warpgroup_mma<std::int8_t, 128>;
  static constexpr int warpgroups = 3;
  static constexpr int lanes = 128 * warpgroups;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  static constexpr int rounds = 4000;
  static constexpr int depth = 128;  ///< of codes
  struct scratch_type {
    alignas(1024) std::int8_t codes[128 * depth];  ///< of rows and of columns
    alignas(128) bfloat16 left[2][64][8];
    alignas(128) bfloat16 right[128][8];
  };

  std::int8_t const* codes;  ///< 128 x depth; the first 64 rows are those of both operands
  bfloat16 const* left;      ///< 2 x 64 x 8
  bfloat16 const* right;     ///< 128 x 8
  std::int32_t* sums;        ///< 64 x 128, of the first round
  std::int32_t* different;   ///< how many sums of later rounds were others

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t which, scratch_type& scratch) const {
    for (int i = group.lane; i < 128 * depth; i += lanes) {
      scratch.codes[swizzled<std::int8_t>(i / depth, i % depth)] = codes[i];
    }
    for (int i = group.lane; i < 2 * 64 * 8; i += lanes) {
      (&scratch.left[0][0][0])[i] = left[i];
      (&scratch.right[0][0])[i] = right[i];
    }
    fence_async_proxy();
    group.sync();
    std::int32_t first[second_mma::registers];
    multiply(scratch, first);
    std::int32_t wrong = 0;
    for (int round = 0; round < rounds; ++round) {
      std::int32_t again[second_mma::registers];
      multiply(scratch, again);
#pragma unroll
      for (int i = 0; i < second_mma::registers; ++i) {
        wrong += again[i] != first[i] ? 1 : 0;
      }
    }
    atomicAdd(different, wrong);
    if (which == 0 && group.lane < 128) {
#pragma unroll
      for (int i = 0; i < second_mma::registers; ++i) {
        int const row = group.lane / 32 * 16 + group.lane % 32 / 4 + i / 2 % 2 * 8;
        sums[row * 128 + i / 4 * 8 + group.lane % 4 * 2 + i % 2] = first[i];
      }
    }
  }

 private:
  __device__ static void multiply(scratch_type const& scratch, std::int32_t (&to)[second_mma::registers]) {
    auto const left_address = static_cast<std::uint32_t>(__cvta_generic_to_shared(scratch.left));
    auto const right_address = static_cast<std::uint32_t>(__cvta_generic_to_shared(scratch.right));
    auto const rows =
        matrix_descriptor::rows_of_128_bytes(static_cast<std::uint32_t>(__cvta_generic_to_shared(scratch.codes)));
    begin_multiply(to);
    first_mma::multiply(reinterpret_cast<float(&)[first_mma::registers]>(to),
                        matrix_descriptor::rows_of_16_bytes(left_address, sizeof(scratch.left[0])),
                        matrix_descriptor::rows_of_16_bytes(right_address, 0), false);
    begin_multiply(to);
#pragma unroll
    for (int step = 0; step < depth / second_mma::depth; ++step) {
      second_mma::multiply(to, rows.further(32 * step), rows.further(32 * step), true);
    }
    commit_multiply();
    await_multiply<0>(to);
  }
};

}  // namespace products_of_two_shapes

namespace {

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

TEST_CASE("products of codes are added to the bits of sums of another shape behind a fence", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using products_of_two_shapes::two_shapes;
  tessera::cuda const exec;
  if (!exec.has<two_shapes>()) {
    WARN("not compiled for this device");
    return;
  }
  std::vector<std::int8_t> codes(128 * two_shapes::depth);
  std::vector<bfloat16> left(2 * 64 * 8);
  std::vector<bfloat16> right(128 * 8);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<std::int8_t>(static_cast<int>(testing::hash(1, i) % 255) - 127);
  }
  for (std::size_t i = 0; i < left.size(); ++i) {
    left[i] = store<bfloat16>(i % 8 == 4 ? (i < left.size() / 2 ? 12582912.0F : 0.0F)
                                         : static_cast<float>(testing::hash(2, i) % 15) - 7.0F);
    right[i] = store<bfloat16>(i % 8 == 4 ? 1.0F : static_cast<float>(testing::hash(3, i) % 15) - 7.0F);
  }
  device_values<std::int8_t> const device_codes(codes);
  device_values<bfloat16> const device_left(left);
  device_values<bfloat16> const device_right(right);
  device_values<std::int32_t> const sums(64 * 128);
  device_values<std::int32_t> const different(std::vector<std::int32_t>{0});
  exec.run(two_shapes{device_codes.data(), device_left.data(), device_right.data(), sums.data(), different.data()},
           264);
  std::vector<std::int32_t> const found = sums.download();
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::size_t const row = i / 128;
    std::size_t const column = i % 128;
    float begun = 0.0F;  // all partial sums are whole numbers below 2^24
    for (std::size_t k = 0; k < 8; ++k) {
      begun += (load(left[row * 8 + k]) + load(left[(64 + row) * 8 + k])) * load(right[column * 8 + k]);
    }
    auto expected = bit_cast<std::int32_t>(begun);
    for (std::size_t k = 0; k < two_shapes::depth; ++k) {
      expected += codes[row * two_shapes::depth + k] * codes[column * two_shapes::depth + k];
    }
    wrong += found[i] == expected ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(different.download()[0] == 0);
}
