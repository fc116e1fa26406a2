// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gemm_operand<T>`: the arithmetic of a matrix product of Ts: how elements are stored, and what type their sums have.
///
///     using operand = gemm_operand<std::int8_t>;
///     operand::sum_type total = 0;                                  // std::int32_t; float of floats
///     total = operand::multiply_add(operand::widen(a), operand::widen(b), total);
///
/// T: float, tf32, bfloat16, float16, float8_e4m3, float8_e5m2, std::int8_t, or int4x2, whose elements are pairs along
/// the depth of the product. Products of all but float are exact, and so are sums of integers in any order. Sums of
/// floats round as the hardware does: their error is a few 2^-24 of the sum of the products' magnitudes. On sm_90 with
/// 8-bit floats, whose tensor cores keep about 13 bits, it is a few 2^-13.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/core/precision.hpp>

namespace tessera {
inline namespace v0 {

/// Floats in memory, of which the product sees the upper 19 bits: sign, 8 exponent bits and 10 mantissa bits.
struct tf32 {};

template <class T>
struct gemm_operand {
  using value_type = T;
  using sum_type = float;
  /// The value that takes part in products.
  TESSERA_FN static constexpr float widen(T value) { return static_cast<float>(load(value)); }
  /// A * b + sum in fp32.
  TESSERA_FN static constexpr float multiply_add(float a, float b, float sum) { return a * b + sum; }
};

/// Floats of which products see the upper 19 bits.
template <>
struct gemm_operand<tf32> {
  using value_type = float;
  using sum_type = float;
  /// The value with its lower bits cut off, not rounded, as tensor cores do.
  TESSERA_FN static constexpr float widen(float value) {
    return bit_cast<float>(bit_cast<std::uint32_t>(value) & 0xffffe000U);
  }
  /// A * b + sum in fp32; a and b were widened.
  TESSERA_FN static constexpr float multiply_add(float a, float b, float sum) { return a * b + sum; }
};

/// 8-bit integers, whose sums have 32 bits.
template <>
struct gemm_operand<std::int8_t> {
  using value_type = std::int8_t;
  using sum_type = std::int32_t;
  /// The value itself.
  TESSERA_FN static constexpr std::int32_t widen(std::int8_t value) { return value; }
  /// a * b + sum. It wraps where the sum does not fit 32 bits, which takes a depth over 131071.
  TESSERA_FN static constexpr std::int32_t multiply_add(std::int32_t a, std::int32_t b, std::int32_t sum) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(sum) + static_cast<std::uint32_t>(a * b));
  }
};

/// Pairs of 4-bit integers that are neighbours along the depth: the product of two pairs is a sum of two products.
template <>
struct gemm_operand<int4x2> {
  using value_type = int4x2;
  using sum_type = std::int32_t;
  /// Both values of a pair.
  struct wide_pair {
    std::int32_t first;   ///< the value in the low bits
    std::int32_t second;  ///< the value in the high bits
  };
  /// Both values of a pair.
  TESSERA_FN static constexpr wide_pair widen(int4x2 pair) { return {low(pair), high(pair)}; }
  /// a * b + sum. It wraps where the sum does not fit 32 bits, which takes a depth over 16 million pairs.
  TESSERA_FN static constexpr std::int32_t multiply_add(wide_pair a, wide_pair b, std::int32_t sum) {
    std::int32_t const both = a.first * b.first + a.second * b.second;
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(sum) + static_cast<std::uint32_t>(both));
  }
};

/// The direction in which the elements of a product's operand lie next to each other: along the depth, as rows of x
/// and of W do in x W^T, or across it, as rows of W^T do.
enum class operand_order { along_depth, across_depth };

/// Names the operands of a program whose elements lie in these orders, where Operand alone names two along the depth.
/// Operand: how elements are multiplied, of 2 bytes.
template <class Operand, operand_order A, operand_order B>
struct ordered_operands {
  static_assert(sizeof(typename gemm_operand<Operand>::value_type) == 2,
                "tessera: tensor cores take only elements of 2 bytes across the depth");
};

/// What a program's operands are: Operand, or ordered_operands.
template <class Operands>
struct orders_of {
  using operand = Operands;                                       ///< how elements are multiplied
  static constexpr operand_order a = operand_order::along_depth;  ///< how a lies
  static constexpr operand_order b = operand_order::along_depth;  ///< how b lies
};
/// The same of ordered_operands.
template <class Operand, operand_order A, operand_order B>
struct orders_of<ordered_operands<Operand, A, B>> {
  using operand = Operand;               ///< how elements are multiplied
  static constexpr operand_order a = A;  ///< how a lies
  static constexpr operand_order b = B;  ///< how b lies
};

}  // namespace v0
}  // namespace tessera
