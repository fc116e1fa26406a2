// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The factor in [1, 2) that turns the largest weight of a block into a power of two, which survives even where no
/// mantissa bits are kept.
///
/// NeuZip (arXiv 2410.20650), section 2.3: a block is divided by the mantissa of its largest magnitude before mantissa
/// bits are dropped. The factor is 1 + q / 256 with q in one byte. Encoding divides by the rounded factor and decoding
/// multiplies by it.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>

namespace tessera {
inline namespace v0 {

/// Folds bit patterns: the state is the pattern of the largest finite magnitude; patterns order as magnitudes do.
template <class T>
struct block_normalizer {
  /// The type of the values that the bit patterns are of.
  using value_type = T;
  /// The bits of the largest finite magnitude so far.
  using state = std::uint32_t;

  /// The state before the first value.
  TESSERA_FN static constexpr state identity() { return 0; }

  /// The state with one more value; NaNs and infinities do not count.
  TESSERA_FN static constexpr state push(state largest, std::uint32_t bits) {
    constexpr std::uint32_t infinite = ((1u << scalar_traits<T>::exponent_bits) - 1) << scalar_traits<T>::mantissa_bits;
    std::uint32_t const magnitude = bits & ((1u << (scalar_traits<T>::bits - 1)) - 1);
    return magnitude < infinite && magnitude > largest ? magnitude : largest;
  }

  /// The state of the values of both states.
  TESSERA_FN static constexpr state merge(state a, state b) { return a > b ? a : b; }

  /// q = the mantissa fraction of the largest magnitude in 256ths, rounded half up, at most 255; 0 for a subnormal.
  TESSERA_FN static constexpr std::uint32_t normalizer(state largest) {
    constexpr int mantissa_bits = scalar_traits<T>::mantissa_bits;
    if ((largest >> mantissa_bits) == 0) {
      return 0;
    }
    std::uint32_t const mantissa = largest & ((1u << mantissa_bits) - 1);
    if constexpr (mantissa_bits <= 8) {
      return mantissa << (8 - mantissa_bits);
    } else {
      return min((mantissa + (1u << (mantissa_bits - 9))) >> (mantissa_bits - 8), 255u);
    }
  }
};

}  // namespace v0
}  // namespace tessera
