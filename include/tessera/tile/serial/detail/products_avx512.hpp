// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The products of tile/serial/add_products.hpp with AVX-512, and whether they are exact.
///
/// Extents are arguments, so that a program has these functions once and not for each tile.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/tile/serial/clear_vectors.hpp>
#include <tessera/tile/serial/detail/products_avx2.hpp>
#include <tessera/tile/serial/vectors.hpp>

#if defined(TESSERA_HAS_VECTORS)

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether all products are exact. Matrices have a multiple of 16 numbers.
[[gnu::target("avx512f")]] inline bool products_are_exact_avx512(float const* a, float const* b,
                                                                 product_extents const& extents) {
  clear_vectors const at_end;
  return products_are_exact_by<sixteen_words>(a, b, extents);
}

/// A product, rounded, that no compiler fuses with a sum.
[[gnu::target("avx512f"), gnu::always_inline]] inline void multiply_rounded(sixteen_floats const& a,
                                                                            sixteen_floats const& b,
                                                                            sixteen_floats& product) {
  constexpr int to_nearest = 8;
#if defined(__clang__)
  product = __builtin_ia32_mulps512(a, b, to_nearest);
#else
  product = __builtin_ia32_mulps512_mask(a, b, sixteen_floats{}, -1, to_nearest);
#endif
}

/// 64 columns of a row of sums. AreExact: products are exact, and compilers fuse them with sums.
template <bool AreExact>
struct wide_row_of_sums {
  sixteen_floats first;
  sixteen_floats second;
  sixteen_floats third;
  sixteen_floats fourth;

  [[gnu::target("avx512f"), gnu::always_inline]] void load(float const* from) {
    first = vector_at<sixteen_floats>(from).value;
    second = vector_at<sixteen_floats>(from + 16).value;
    third = vector_at<sixteen_floats>(from + 32).value;
    fourth = vector_at<sixteen_floats>(from + 48).value;
  }
  [[gnu::target("avx512f"), gnu::always_inline]] void add(float a, wide_row_of_sums const& b) {
    sixteen_words const bits = sixteen_words{} + bit_cast<std::int32_t>(a);
    auto const factor = reinterpret_cast<sixteen_floats>(bits);
    add_one(first, factor, b.first);
    add_one(second, factor, b.second);
    add_one(third, factor, b.third);
    add_one(fourth, factor, b.fourth);
  }
  [[gnu::target("avx512f"), gnu::always_inline]] void store(float* to) const {
    vector_at<sixteen_floats>(to).value = first;
    vector_at<sixteen_floats>(to + 16).value = second;
    vector_at<sixteen_floats>(to + 32).value = third;
    vector_at<sixteen_floats>(to + 48).value = fourth;
  }

 private:
  [[gnu::target("avx512f"), gnu::always_inline]] static void add_one(sixteen_floats& sum, sixteen_floats const& a,
                                                                     sixteen_floats const& b) {
    if constexpr (AreExact) {
      sum += a * b;
    } else {
      sixteen_floats product;
      multiply_rounded(a, b, product);
      sum += product;
    }
  }
};

/// Four rows and 64 columns from where a, b and sums begin.
template <bool AreExact>
[[gnu::target("avx512f"), gnu::always_inline]] inline void add_rows_avx512(float const* a, float const* b, float* sums,
                                                                           product_extents const& extents) {
  std::int64_t const depth = extents.depth;
  std::int64_t const columns = extents.columns;
  wide_row_of_sums<AreExact> own[4];
  own[0].load(sums);
  own[1].load(sums + columns);
  own[2].load(sums + 2 * columns);
  own[3].load(sums + 3 * columns);
  for (std::int64_t k = 0; k < depth; ++k) {
    wide_row_of_sums<AreExact> values;
    values.load(b + k * columns);
    own[0].add(a[k], values);
    own[1].add(a[depth + k], values);
    own[2].add(a[2 * depth + k], values);
    own[3].add(a[3 * depth + k], values);
  }
  own[0].store(sums);
  own[1].store(sums + columns);
  own[2].store(sums + 2 * columns);
  own[3].store(sums + 3 * columns);
}
/// Adds products. Rows are a multiple of 4, and columns of 64.
template <bool AreExact>
[[gnu::target("avx512f")]] void add_products_avx512(float const* a, float const* b, float* sums,
                                                    product_extents const& extents) {
  clear_vectors const at_end;
  for (int column = 0; column < extents.columns; column += 64) {
    for (int row = 0; row < extents.rows; row += 4) {
      add_rows_avx512<AreExact>(a + row * extents.depth, b + column, sums + row * extents.columns + column, extents);
    }
  }
}

/// Whether fused multiply-adds are faster than products and sums, so that it pays to ask whether products are exact.
/// AMD's processors add in ports of their own, while others multiply.
inline bool gains_by_fusing() {
  static bool const gains = __builtin_cpu_is("amd") == 0;
  return gains;
}

/// Adds products of a multiple of 4 rows by 16 columns, of a multiple of 16 numbers in a; false: nothing was done.
inline bool add_products_by_vectors(float const* a, float const* b, float* sums, product_extents const& extents) {
  if (has_wide_vectors() && extents.columns % 64 == 0) {
    if (gains_by_fusing() && products_are_exact_avx512(a, b, extents)) {
      add_products_avx512<true>(a, b, sums, extents);
    } else {
      add_products_avx512<false>(a, b, sums, extents);
    }
    return true;
  }
  if (has_vectors() && gains_by_fusing() && products_are_exact_avx2(a, b, extents)) {
    add_exact_products_avx2(a, b, sums, extents);
    return true;
  }
  return false;
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera

#endif
