// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_operand<T>`: what a matrix product of Ts computes: how elements are stored, what their sums are.
///
///     using sum = gemm_operand<std::int8_t>::sum_type;             // std::int32_t; float for all others
///     sum total = 0;
///     total = gemm_operand<std::int8_t>::multiply_add(3, -4, total);
///
/// T: float, tf32, bfloat16, float16, float8_e4m3, float8_e5m2, std::int8_t. Products of all but float are exact; sums
/// of them round as the machine at hand does (tensor cores keep fewer bits of 8-bit floats' sums: about 13, see
/// tile/cuda/warpgroup_mma.cuh).
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>

namespace tessera {
inline namespace v0 {

/// Operands that are floats in memory, of which the product sees the upper 19 bits: 8 of exponent and 10 of mantissa.
struct tf32 {};

template <class T>
struct gemm_operand {
  using value_type = T;
  using sum_type = float;
  TESSERA_FN static float multiply_add(T a, T b, float sum) {
    return tessera::multiply_add(static_cast<float>(load(a)), static_cast<float>(load(b)), sum);
  }
};

template <>
struct gemm_operand<tf32> {
  using value_type = float;
  using sum_type = float;
  /// Cut off, not rounded, as tensor cores do.
  TESSERA_FN static constexpr float seen(float value) {
    return bit_cast<float>(bit_cast<std::uint32_t>(value) & 0xffffe000U);
  }
  TESSERA_FN static float multiply_add(float a, float b, float sum) {
    return tessera::multiply_add(seen(a), seen(b), sum);
  }
};

template <>
struct gemm_operand<std::int8_t> {
  using value_type = std::int8_t;
  using sum_type = std::int32_t;
  /// Wraps where the sum does not fit 32 bits: with a depth over 131071.
  TESSERA_FN static constexpr std::int32_t multiply_add(std::int8_t a, std::int8_t b, std::int32_t sum) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(sum) +
                                     static_cast<std::uint32_t>(std::int32_t{a} * std::int32_t{b}));
  }
};

}  // namespace v0
}  // namespace tessera
