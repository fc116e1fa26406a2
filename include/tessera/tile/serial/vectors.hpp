// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Vectors of 32 and 64 bytes for host code that chooses its instructions when it runs, and needs no compiler flag.
///
///     if (detail::has_vectors()) {
///       double_all(values);  // [[gnu::target("avx2,fma")]]: vector_at<eight_floats>(values).value *= 2.0F
///     }
///
/// Functions with vectors exist where TESSERA_HAS_VECTORS is defined. Vectors are the compiler's own, because
/// <immintrin.h> takes a compiler longer than all of this library's tiles. A function that gets or gives them carries
/// its instruction set, too, and is inlined: so no vector is passed in a call.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>

#if !defined(__CUDACC_RTC__)
#include <tessera/core/cpu_features.hpp>
#if defined(__x86_64__) && defined(__GNUC__)
#if __has_builtin(__builtin_shufflevector)
/// Defined where functions can have AVX2 and FMA by an attribute.
#define TESSERA_HAS_VECTORS
#endif
#endif
#endif

namespace tessera {
inline namespace v0 {
namespace detail {

#if defined(TESSERA_HAS_VECTORS)

/// Vectors of 32 bytes.
using eight_floats = float __attribute__((vector_size(32)));
using eight_words = std::int32_t __attribute__((vector_size(32)));
using sixteen_halves = short __attribute__((vector_size(32)));
/// Vectors of 64 bytes, for functions with AVX-512.
using sixteen_floats = float __attribute__((vector_size(64)));
using sixteen_words = std::int32_t __attribute__((vector_size(64)));
using thirty_two_halves = short __attribute__((vector_size(64)));
/// A vector in memory, where it may lie anywhere: copy it to hand it on by reference.
template <class Vector>
struct __attribute__((packed, may_alias)) stored_vector {
  Vector value;  ///< the vector
};

/// The vector that begins at an address.
template <class Vector, class T>
[[gnu::always_inline]] inline auto& vector_at(T* at) {
  if constexpr (std::is_const_v<T>) {
    return *reinterpret_cast<stored_vector<Vector> const*>(at);
  } else {
    return *reinterpret_cast<stored_vector<Vector>*>(at);
  }
}

/// Whether the processor has AVX2 and FMA, unless TESSERA_SIMD lowers its level. It is asked for once in a process.
inline bool has_vectors() {
  static bool const has = best_simd_level() >= simd_level::avx2 && __builtin_cpu_supports("fma") != 0;
  return has;
}

/// Whether it has AVX-512 F, BW, DQ and VL.
inline bool has_wide_vectors() {
  static bool const has = has_vectors() && best_simd_level() >= simd_level::avx512;
  return has;
}

/// Exchanges rows and columns of 8 x 8 words.
[[gnu::target("avx2"), gnu::always_inline]] inline void transpose_eight(eight_words (&rows)[8]) {
  eight_words pairs[8];
  for (int i = 0; i < 4; ++i) {
    pairs[2 * i] = __builtin_shufflevector(rows[2 * i], rows[2 * i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[2 * i + 1] = __builtin_shufflevector(rows[2 * i], rows[2 * i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  eight_words fours[8];
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      eight_words const upper = pairs[4 * i + j];
      eight_words const lower = pairs[4 * i + 2 + j];
      fours[4 * i + 2 * j] = __builtin_shufflevector(upper, lower, 0, 1, 8, 9, 4, 5, 12, 13);
      fours[4 * i + 2 * j + 1] = __builtin_shufflevector(upper, lower, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {
    rows[i] = __builtin_shufflevector(fours[i], fours[4 + i], 0, 1, 2, 3, 8, 9, 10, 11);
    rows[4 + i] = __builtin_shufflevector(fours[i], fours[4 + i], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

#else

/// Whether functions with vectors can be called: never, for this compiler or machine.
TESSERA_FN constexpr bool has_vectors() {
  return false;
}

#endif

}  // namespace detail
}  // namespace v0
}  // namespace tessera
