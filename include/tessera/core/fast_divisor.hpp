// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `fast_divisor`: quotients by a number that is known before a program runs. It takes a product and a shift where a
/// device's division takes thirty instructions one after the other.
///
///     auto const by = tessera::fast_divisor::of(12);     // on the host
///     by.quotient(100);                                   // 8
///     by.remainder(100);                                  // 4
///
/// T. Granlund, P. Montgomery, "Division by invariant integers using multiplication", PLDI 1994, section 4. The
/// numerator has 31 bits, so that its sum with the product has 32.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {

struct fast_divisor {
  std::uint32_t divisor = 1;  ///< the number to divide by
  /// The factor of a number; the upper 32 bits of the product are added to the number.
  std::uint32_t factor = 1;
  std::uint32_t shift = 0;  ///< bits by which that sum is shifted right

  /// The divisor for a number from 1 to 2^31.
  [[nodiscard]] TESSERA_FN static constexpr fast_divisor of(std::uint32_t divisor) {
    auto const shift = static_cast<std::uint32_t>(log2_ceil(divisor));
    std::uint64_t const beyond = (std::uint64_t{1} << shift) - divisor;
    return {divisor, static_cast<std::uint32_t>((beyond << 32) / divisor + 1), shift};
  }
  /// The divisor for a count below 2^31. A count of 0 gives the divisor 1.
  [[nodiscard]] TESSERA_FN static constexpr fast_divisor of_count(std::int64_t count) {
    return of(count < 1 ? 1U : static_cast<std::uint32_t>(count));
  }
  /// The number to divide by, as a signed number.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t value() const { return static_cast<std::int32_t>(divisor); }
  /// The quotient of a number below 2^31.
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t quotient(std::uint32_t number) const {
    return (multiply_high(number, factor) + number) >> shift;
  }
  /// The remainder of a number below 2^31.
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t remainder(std::uint32_t number) const {
    return number - quotient(number) * divisor;
  }
  /// The quotient of a number that is not negative.
  friend TESSERA_FN constexpr std::int32_t operator/(std::int32_t number, fast_divisor by) {
    return static_cast<std::int32_t>(by.quotient(static_cast<std::uint32_t>(number)));
  }
};

}  // namespace v0
}  // namespace tessera
