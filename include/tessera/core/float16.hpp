// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// IEEE half precision: 5 exponent bits, 10 mantissa bits. The type holds bits and does no arithmetic.
///
///     tessera::float16 one = tessera::store<tessera::float16>(1.0F);   // <tessera/core/precision.hpp>
///     float sum = tessera::load(one) + tessera::load(one);
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// Same size and bits as `__half`. `==` compares bits: a NaN equals itself, and -0 differs from +0.
struct float16 {
  std::uint16_t bits;  ///< sign, 5 exponent bits, 10 mantissa bits

  friend constexpr bool operator==(float16, float16) = default;
};

}  // namespace v0
}  // namespace tessera
