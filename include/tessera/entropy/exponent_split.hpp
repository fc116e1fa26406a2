// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Splits a floating-point value into its exponent, which entropy coding makes smaller, and the rest, which it does
/// not.
///
/// NeuZip (arXiv 2410.20650, section 2.1): the exponents of trained weights carry 2.5 to 2.9 bits of information; signs
/// and mantissas are incompressible.
///
///     using split = tessera::exponent_split<tessera::bfloat16>;
///     std::uint32_t bits = 0x3fc0;                             // 1.5
///     split::exponent(bits);                                   // 127
///     split::residual(bits);                                   // sign 0, mantissa 0x40
///     split::join(split::exponent(bits), split::residual(bits)) == bits;
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/precision.hpp>

namespace tessera {
inline namespace v0 {

/// The split of one storage type. All functions work on bit patterns, so every pattern survives: NaN payloads,
/// infinities, signed zeros and subnormals included.
///
/// Law: join(exponent(b), residual(b)) == b for every pattern b.
template <class T>
struct exponent_split {
  /// The type that is split.
  using value_type = T;
  static constexpr int exponent_bits = scalar_traits<T>::exponent_bits;  ///< exponent bits of the type
  static constexpr int mantissa_bits = scalar_traits<T>::mantissa_bits;  ///< mantissa bits of the type
  /// Bits of the sign and the mantissa.
  static constexpr int residual_bits = 1 + mantissa_bits;
  /// The exponent field of a NaN or an infinity.
  static constexpr std::uint32_t largest_exponent = (1u << exponent_bits) - 1;

  /// The exponent field of a value's bits.
  TESSERA_FN static constexpr std::uint32_t exponent(std::uint32_t bits) {
    return (bits >> mantissa_bits) & largest_exponent;
  }

  /// The sign and the mantissa: sign << mantissa_bits | mantissa.
  TESSERA_FN static constexpr std::uint32_t residual(std::uint32_t bits) {
    std::uint32_t const sign = bits >> (exponent_bits + mantissa_bits);
    return (sign << mantissa_bits) | (bits & ((1u << mantissa_bits) - 1));
  }

  /// The bits of a value from its exponent() and residual().
  TESSERA_FN static constexpr std::uint32_t join(std::uint32_t exponent, std::uint32_t residual) {
    std::uint32_t const sign = residual >> mantissa_bits;
    std::uint32_t const mantissa = residual & ((1u << mantissa_bits) - 1);
    return (sign << (exponent_bits + mantissa_bits)) | (exponent << mantissa_bits) | mantissa;
  }
};

}  // namespace v0
}  // namespace tessera
