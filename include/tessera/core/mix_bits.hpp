// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Pseudorandom numbers of 64 bits that depend on a seed and an index alone.
///
///     std::uint64_t const lot = tessera::mix_bits(seed, 42);
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The number at position `index` of the splitmix64 sequence (Steele, Lea, Flood 2014) started at `seed`.
TESSERA_FN constexpr std::uint64_t mix_bits(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

}  // namespace v0
}  // namespace tessera
