// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// mma.sync: a warp multiplies 16 rows by 8 columns, over a depth of 32 bytes of operands.
///
/// With group = lane / 4 and four bytes to a register, lane l holds
///     of a (16 x 32 bytes): rows group and group + 8, bytes 4 * (l % 4) on: [0], [1]; 16 bytes further: [2], [3]
///     of b (8 columns x 32 bytes, column after column): column group, bytes 4 * (l % 4) on: [0]; 16 bytes further: [1]
///     of the sums: row group, columns 2 * (l % 4) and the next  [0], [1];  row group + 8  [2], [3]
/// which is what load_matrix gives. For pairs of 4-bit integers 32 bytes are a depth of 64, the low one of a byte
/// first.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/tile/gemm_operand.hpp>

namespace tessera {
inline namespace v0 {

/// The instruction for an operand type: depth in elements, and multiply(sums, a, b), which adds to the sums.
template <class T>
struct warp_mma;

namespace detail {

/// The part of the instruction's name that depends on the operand type.
template <class T>
struct warp_mma_name;
template <>
struct warp_mma_name<bfloat16> {
  static constexpr char text[] = "m16n8k16.row.col.f32.bf16.bf16.f32";
};
template <>
struct warp_mma_name<float16> {
  static constexpr char text[] = "m16n8k16.row.col.f32.f16.f16.f32";
};
template <>
struct warp_mma_name<tf32> {
  static constexpr char text[] = "m16n8k8.row.col.f32.tf32.tf32.f32";
};
template <>
struct warp_mma_name<float8_e4m3> {
  static constexpr char text[] = "m16n8k32.row.col.f32.e4m3.e4m3.f32";
};
template <>
struct warp_mma_name<float8_e5m2> {
  static constexpr char text[] = "m16n8k32.row.col.f32.e5m2.e5m2.f32";
};

}  // namespace detail

template <class T>
requires requires {
  detail::warp_mma_name<T>::text;
}
/// The instruction for floats, with sums in fp32.
struct warp_mma<T> {
  using sum_type = float;
  static constexpr int depth = 32 / static_cast<int>(sizeof(typename gemm_operand<T>::value_type));

  __device__ __forceinline__ static void multiply(float (&sums)[4], std::uint32_t const (&a)[4],
                                                  std::uint32_t const (&b)[2]) {
    asm("mma.sync.aligned.%10 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "C"(detail::warp_mma_name<T>::text));
  }
};

/// The instruction for 8-bit integers, with sums in 32 bits.
template <>
struct warp_mma<std::int8_t> {
  using sum_type = std::int32_t;
  static constexpr int depth = 32;

  /// Adds the product to the sums, which wrap where they do not fit 32 bits.
  __device__ __forceinline__ static void multiply(std::int32_t (&sums)[4], std::uint32_t const (&a)[4],
                                                  std::uint32_t const (&b)[2]) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

/// The instruction for pairs of 4-bit integers, with sums in 32 bits. sm_80 to sm_89 have it; for later architectures
/// ptxas puts a subroutine in its place, which gemm_tile.cuh avoids.
template <>
struct warp_mma<int4x2> {
  using sum_type = std::int32_t;
  static constexpr int depth = 32;  ///< in pairs

  /// Adds the product to the sums, which wrap where they do not fit 32 bits.
  __device__ __forceinline__ static void multiply(std::int32_t (&sums)[4], std::uint32_t const (&a)[4],
                                                  std::uint32_t const (&b)[2]) {
    asm("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

}  // namespace v0
}  // namespace tessera
