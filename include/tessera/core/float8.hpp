// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The two 8-bit floats of the Open Compute Project's OFP8. They hold bits and do no arithmetic.
///
///     auto code = tessera::store<tessera::float8_e4m3>(1000.0F);   // <tessera/core/precision.hpp>
///     float largest = tessera::load(code);                         // 448: values beyond the range saturate
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// 4 exponent bits, 3 mantissa bits, largest value 448, no infinity; 0x7f and 0xff are NaN ("e4m3fn").
/// Same size and bits as `__nv_fp8_e4m3`. `==` compares bits: a NaN equals itself, and -0 differs from +0.
struct float8_e4m3 {
  std::uint8_t bits;  ///< sign, 4 exponent bits, 3 mantissa bits

  friend constexpr bool operator==(float8_e4m3, float8_e4m3) = default;
};

/// 5 exponent bits, 2 mantissa bits, largest finite value 57344; 0x7c is infinity, 0x7d to 0x7f are NaN.
/// Same size and bits as `__nv_fp8_e5m2`. `==` compares bits: a NaN equals itself, and -0 differs from +0.
struct float8_e5m2 {
  std::uint8_t bits;  ///< sign, 5 exponent bits, 2 mantissa bits

  friend constexpr bool operator==(float8_e5m2, float8_e5m2) = default;
};

}  // namespace v0
}  // namespace tessera
