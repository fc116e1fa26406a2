// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Finds at run time which vector instructions the processor has.
///
///     tessera::simd_level level = tessera::best_simd_level();
///     if (level >= tessera::simd_level::avx2) { fast(); } else { portable(); }
///
/// The environment variable TESSERA_SIMD (scalar, avx2 or avx512) lowers the answer, for tests and comparisons. It
/// never raises it.
#pragma once

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace tessera {
inline namespace v0 {

/// Levels in order: each has all instructions of those before it.
///
/// avx2:   AVX2, BMI1, BMI2, POPCNT (Haswell, Zen)
/// avx512: avx2 and AVX-512 F, BW, DQ, VL (Skylake-SP, Zen 4)
enum class simd_level { scalar, avx2, avx512 };

/// The name of a level in messages and benchmarks.
inline char const* simd_level_name(simd_level level) {
  return level == simd_level::avx512 ? "avx512" : level == simd_level::avx2 ? "avx2" : "scalar";
}

/// The level that the processor and its operating system support.
inline simd_level supported_simd_level() {
#if defined(__x86_64__) && defined(__GNUC__)
  __builtin_cpu_init();  // for calls from constructors of globals
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2") ||
      !__builtin_cpu_supports("popcnt")) {
    return simd_level::scalar;
  }
  bool const wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return wide ? simd_level::avx512 : simd_level::avx2;
#else
  return simd_level::scalar;
#endif
}

/// The level that results from what is supported and the level that was `asked` for by name. Null and other names lower
/// nothing.
inline simd_level limit_simd_level(simd_level supported, char const* asked) {
  for (simd_level level : {simd_level::scalar, simd_level::avx2}) {
    if (asked != nullptr && level < supported && std::strcmp(asked, simd_level_name(level)) == 0) {
      return level;
    }
  }
  return supported;
}

/// The level to use. It reads the environment at every call, so ask once for a tensor, not for each block.
inline simd_level best_simd_level() {
  return limit_simd_level(supported_simd_level(), std::getenv("TESSERA_SIMD"));
}

}  // namespace v0
}  // namespace tessera
