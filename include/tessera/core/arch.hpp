// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A GPU architecture, by its compute capability.
///
///     static_assert(tessera::sm_80 < tessera::sm_89);
///     bool const has_fp8 = device >= tessera::sm_89;
#pragma once

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// Ordered by age: major first. May be a template argument. (A defaulted <=> would return a type of the standard
/// library, whose comparisons device code may not call.)
struct arch {
  int major;  ///< 9 of sm_90
  int minor;  ///< 0 of sm_90

  /// As in the compiler's names: 90 for sm_90.
  TESSERA_FN constexpr int number() const { return 10 * major + minor; }

  friend constexpr bool operator==(arch, arch) = default;
  /// Older architectures come first: by major, then by minor number.
  friend TESSERA_FN constexpr bool operator<(arch a, arch b) {
    return a.major != b.major ? a.major < b.major : a.minor < b.minor;
  }
  /// As operator<, turned round.
  friend TESSERA_FN constexpr bool operator>(arch a, arch b) { return b < a; }
  /// As operator<, or equal.
  friend TESSERA_FN constexpr bool operator<=(arch a, arch b) { return !(b < a); }
  /// As operator>, or equal.
  friend TESSERA_FN constexpr bool operator>=(arch a, arch b) { return !(a < b); }
};

inline constexpr arch sm_80{8, 0};  ///< A100: asynchronous copies, bf16 mma
inline constexpr arch sm_89{8, 9};  ///< L4, RTX 40: FP8 mma
inline constexpr arch sm_90{9, 0};  ///< H100, H200: TMA, wgmma, clusters

}  // namespace v0
}  // namespace tessera
