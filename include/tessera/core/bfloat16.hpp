// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The upper half of a float: 8 exponent bits, 7 mantissa bits. The type holds bits and does no arithmetic.
///
///     tessera::bfloat16 one = tessera::store<tessera::bfloat16>(1.0F);   // <tessera/core/precision.hpp>
///     float sum = tessera::load(one) + tessera::load(one);
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// Same size and bits as `__nv_bfloat16`. `==` compares bits: a NaN equals itself, and -0 differs from +0.
struct bfloat16 {
  std::uint16_t bits;  ///< sign, 8 exponent bits, 7 mantissa bits

  friend constexpr bool operator==(bfloat16, bfloat16) = default;
};

}  // namespace v0
}  // namespace tessera
