// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Codes an exponent in four bits: there are codes for fourteen neighbouring exponents, one other exponent, and an
/// escape.
///
/// The exponents of trained weights lie within a narrow window: fifteen neighbours cover 99.93 to 99.99 percent of
/// them. The code for one other exponent is for tensors with many exact zeros; in all other tensors it is the fifteenth
/// neighbour.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The map between exponents (0 to 255) and codes (0 to 15).
struct exponent_window {
  static constexpr std::uint32_t neighbours = 14;   ///< exponents from base on that have codes 0 to 13
  static constexpr std::uint32_t extra_code = 14;   ///< the code of the exponent `extra`
  static constexpr std::uint32_t escape_code = 15;  ///< the code of all other exponents
  static constexpr int codes = 16;                  ///< the number of codes, which have 4 bits

  std::uint8_t base = 0;    ///< the exponent with code 0
  std::uint8_t extra = 14;  ///< the exponent with code 14

  /// Whether the fifteen exponents with a code are neighbours, so that exponent = base + code, with no test.
  TESSERA_FN constexpr bool is_contiguous() const { return extra == base + neighbours; }

  /// Whether all exponents with a code are at most largest_exponent.
  TESSERA_FN constexpr bool fits(std::uint32_t largest_exponent) const {
    return base + neighbours - 1 <= largest_exponent && extra <= largest_exponent;
  }

  /// The code of an exponent: escape_code if the window has no code for it.
  TESSERA_FN constexpr std::uint32_t code(std::uint32_t exponent) const {
    std::uint32_t const offset = exponent - base;
    if (offset < neighbours) {
      return offset;
    }
    return exponent == extra ? extra_code : escape_code;
  }

  /// The escapes among eight codes, the first in the lowest bits: bit 4 i is set if code number i is escape_code.
  TESSERA_FN static constexpr std::uint32_t escapes_among(std::uint32_t eight) {
    std::uint32_t const twos = eight & eight >> 1;
    return twos & twos >> 2 & 0x11111111U;
  }

  /// The exponent with this code. Exponents with escape_code are listed elsewhere. Where a broken stream lists none,
  /// all decoders use the exponent after `extra`.
  TESSERA_FN constexpr std::uint32_t exponent(std::uint32_t code) const {
    return (code < neighbours ? base + code : extra + (code - extra_code)) & 0xffu;
  }

  TESSERA_FN friend constexpr bool operator==(exponent_window a, exponent_window b) {
    return a.base == b.base && a.extra == b.extra;
  }
};

/// A window, and how many of the counted exponents it has codes for.
struct exponent_window_candidate {
  exponent_window window;     ///< the window
  std::uint64_t covered = 0;  ///< how many counted exponents have a code
};

/// How many windows a format has: one for each base from 0 to this number minus 1.
TESSERA_FN constexpr std::uint32_t exponent_window_candidates(std::uint32_t largest_exponent) {
  return largest_exponent + 2 - exponent_window::neighbours;
}

/// The best window with this base. counts: how often each exponent from 0 to largest_exponent occurs. The fifteenth
/// exponent is the next neighbour unless one outside the window is more frequent (ties to the lower exponent).
template <class Count>
TESSERA_FN constexpr exponent_window_candidate exponent_window_at(std::uint32_t base, Count const* counts,
                                                                  std::uint32_t largest_exponent) {
  std::uint32_t const end = base + exponent_window::neighbours;
  std::uint32_t extra = end <= largest_exponent ? end : base - 1;
  std::uint64_t extra_count = counts[extra];
  std::uint64_t inside = 0;
  for (std::uint32_t exponent = 0; exponent <= largest_exponent; ++exponent) {
    std::uint64_t const count = counts[exponent];
    bool const is_inside = exponent >= base && exponent < end;
    bool const is_better = !is_inside && count > extra_count;
    inside += is_inside ? count : 0;
    extra = is_better ? exponent : extra;
    extra_count = is_better ? count : extra_count;
  }
  return {{static_cast<std::uint8_t>(base), static_cast<std::uint8_t>(extra)}, inside + extra_count};
}

/// The window that leaves the fewest exponents without a code; ties to the lower base. Integers give the same
/// everywhere.
template <class Count>
TESSERA_FN constexpr exponent_window fit_exponent_window(Count const* counts, std::uint32_t largest_exponent) {
  exponent_window_candidate best = exponent_window_at(0, counts, largest_exponent);
  for (std::uint32_t base = 1; base < exponent_window_candidates(largest_exponent); ++base) {
    exponent_window_candidate const candidate = exponent_window_at(base, counts, largest_exponent);
    if (candidate.covered > best.covered) {
      best = candidate;
    }
  }
  return best.window;
}

}  // namespace v0
}  // namespace tessera
