// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The products of tile/serial/multiply_codes.hpp with AVX-512 VNNI: pairs of 16 bits, whose products one instruction
/// adds to sums of 32 bits, which wrap.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/tile/serial/clear_vectors.hpp>
#include <tessera/tile/serial/detail/products_avx2.hpp>
#include <tessera/tile/serial/vectors.hpp>

#if defined(TESSERA_HAS_VECTORS)

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether the processor has AVX-512 VNNI.
inline bool has_pair_sums() {
  static bool const has = has_wide_vectors() && __builtin_cpu_supports("avx512vnni") != 0;
  return has;
}

/// 64 columns of a row of sums, or of pairs.
struct wide_row_of_words {
  sixteen_words first;
  sixteen_words second;
  sixteen_words third;
  sixteen_words fourth;

  [[gnu::target("avx512f,avx512vnni"), gnu::always_inline]] void load(std::int32_t const* from) {
    first = vector_at<sixteen_words>(from).value;
    second = vector_at<sixteen_words>(from + 16).value;
    third = vector_at<sixteen_words>(from + 32).value;
    fourth = vector_at<sixteen_words>(from + 48).value;
  }
  /// Adds the products of a pair and of pairs of all columns.
  [[gnu::target("avx512f,avx512vnni"), gnu::always_inline]] void add(std::int32_t pair, wide_row_of_words const& by) {
    sixteen_words const factor = sixteen_words{} + pair;
    add_one(first, factor, by.first);
    add_one(second, factor, by.second);
    add_one(third, factor, by.third);
    add_one(fourth, factor, by.fourth);
  }
  [[gnu::target("avx512f,avx512vnni"), gnu::always_inline]] void store(std::int32_t* to) const {
    vector_at<sixteen_words>(to).value = first;
    vector_at<sixteen_words>(to + 16).value = second;
    vector_at<sixteen_words>(to + 32).value = third;
    vector_at<sixteen_words>(to + 48).value = fourth;
  }

 private:
  [[gnu::target("avx512f,avx512vnni"), gnu::always_inline]] static void add_one(sixteen_words& sum,
                                                                                sixteen_words const& a,
                                                                                sixteen_words const& b) {
#if defined(__clang__)
    sum = __builtin_ia32_vpdpwssd512(sum, a, b);
#else
    sum = __builtin_ia32_vpdpwssd_v16si(sum, a, b);
#endif
  }
};

/// Adds products of pairs. The depth of extents is in pairs; rows are a multiple of 4, and columns of 64.
[[gnu::target("avx512f,avx512vnni")]] inline void add_pairs_avx512(std::int32_t const* a, std::int32_t const* b,
                                                                   std::int32_t* sums, product_extents const& extents) {
  clear_vectors const at_end;
  std::int64_t const depth = extents.depth;
  std::int64_t const columns = extents.columns;
  for (std::int64_t column = 0; column < columns; column += 64) {
    for (std::int64_t row = 0; row < extents.rows; row += 4) {
      std::int32_t const* const pairs = a + row * depth;
      std::int32_t* const to = sums + row * columns + column;
      wide_row_of_words own[4];
      own[0].load(to);
      own[1].load(to + columns);
      own[2].load(to + 2 * columns);
      own[3].load(to + 3 * columns);
      for (std::int64_t k = 0; k < depth; ++k) {
        wide_row_of_words by;
        by.load(b + k * columns + column);
        own[0].add(pairs[k], by);
        own[1].add(pairs[depth + k], by);
        own[2].add(pairs[2 * depth + k], by);
        own[3].add(pairs[3 * depth + k], by);
      }
      own[0].store(to);
      own[1].store(to + columns);
      own[2].store(to + 2 * columns);
      own[3].store(to + 3 * columns);
    }
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera

#endif
