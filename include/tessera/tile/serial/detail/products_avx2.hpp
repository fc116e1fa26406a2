// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Products of tile/serial/add_products.hpp that are exact, with AVX2 and FMA, and whether products are exact.
///
/// Extents are arguments, so that a program has these functions once and not for each tile.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/tile/serial/clear_vectors.hpp>
#include <tessera/tile/serial/vectors.hpp>

#if defined(TESSERA_HAS_VECTORS)

namespace tessera {
inline namespace v0 {
namespace detail {

/// sums += a b for a of rows x depth, b of depth x columns, row after row.
struct product_extents {
  int rows;
  int columns;
  int depth;
};

/// What is known of the magnitudes of a matrix's numbers, as bits.
struct magnitude_bounds {
  std::int32_t most;   ///< the largest
  std::int32_t least;  ///< the least but zero; 0: all numbers are zeros
};

/// Whether all products of two matrices' numbers are exact in fp32, so that a fused multiply-add rounds as a product
/// and a sum do: if no number has more than 12 significant bits, as those of at most 16 bits and tf32 have not, none is
/// denormal, and every product is zero or from 2^-126 to 2^127. `used`: bits that any number has.
inline bool products_are_exact(magnitude_bounds const& a, magnitude_bounds const& b, std::int32_t used) {
  constexpr int bias = 127;
  int const most = (a.most >> 23) + (b.most >> 23) - 2 * bias;
  int const least = (a.least >> 23) + (b.least >> 23) - 2 * bias;
  bool const is_small = least < 1 - bias || a.least >> 23 == 0 || b.least >> 23 == 0;
  bool const are_zeros = a.least == 0 || b.least == 0;
  return (used & 0xfff) == 0 && most <= bias - 2 && (are_zeros || !is_small);
}

// Templates of vectors are for AVX2 and are inlined where they are used: with vectors of 64 bytes in functions for
// AVX-512, where compilers make instructions for AVX-512 of them.

using eight_bits = std::uint32_t __attribute__((vector_size(32)));
using sixteen_bits = std::uint32_t __attribute__((vector_size(64)));

/// The larger numbers of two vectors.
template <class Words>
[[gnu::target("avx2"), gnu::always_inline]] inline void raise(Words& to, Words const& by) {
  to = to > by ? to : by;
}
/// Makes all numbers the largest. Words: eight_words or sixteen_words.
template <class Words>
[[gnu::target("avx2"), gnu::always_inline]] inline void raise_to_largest(Words& numbers) {
  if constexpr (sizeof(Words) == 64) {
    raise(numbers, __builtin_shufflevector(numbers, numbers, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
    raise(numbers, __builtin_shufflevector(numbers, numbers, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
    raise(numbers, __builtin_shufflevector(numbers, numbers, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
    raise(numbers, __builtin_shufflevector(numbers, numbers, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
  } else {
    raise(numbers, __builtin_shufflevector(numbers, numbers, 4, 5, 6, 7, 0, 1, 2, 3));
    raise(numbers, __builtin_shufflevector(numbers, numbers, 2, 3, 0, 1, 6, 7, 4, 5));
    raise(numbers, __builtin_shufflevector(numbers, numbers, 1, 0, 3, 2, 5, 4, 7, 6));
  }
}
/// The bounds of `count` numbers, whole vectors, whose bits are added to those that are used.
template <class Words>
[[gnu::target("avx2"), gnu::always_inline]] inline magnitude_bounds bounds_of(float const* numbers, int count,
                                                                              Words& used) {
  using bits_type = std::conditional_t<sizeof(Words) == 64, sixteen_bits, eight_bits>;
  constexpr std::uint32_t top = 0x80000000U;
  Words most{};
  // 2^31 less the magnitude, which makes a zero the farthest; nvcc 13.0 cannot add constants of 64 bytes.
  Words nearness = most + INT32_MIN;
  for (int i = 0; i < count; i += static_cast<int>(sizeof(Words) / sizeof(float))) {
    bits_type const bits = vector_at<bits_type>(numbers + i).value;
    bits_type const magnitude = bits & ~top;
    raise(most, reinterpret_cast<Words>(magnitude));
    raise(nearness, reinterpret_cast<Words>(top - magnitude));
    used |= reinterpret_cast<Words>(bits);
  }
  raise_to_largest(most);
  raise_to_largest(nearness);
  return {most[0], static_cast<std::int32_t>(top - static_cast<std::uint32_t>(nearness[0]))};
}
/// Whether all products are exact. Matrices have numbers of whole vectors.
template <class Words>
[[gnu::target("avx2"), gnu::always_inline]] inline bool products_are_exact_by(float const* a, float const* b,
                                                                              product_extents const& extents) {
  Words used = vector_at<Words>(a).value & 0xfff;
  raise_to_largest(used);
  if (used[0] != 0) {
    return false;  // numbers of fp32, as a rule
  }
  magnitude_bounds const of_a = bounds_of(a, extents.rows * extents.depth, used);
  magnitude_bounds const of_b = bounds_of(b, extents.depth * extents.columns, used);
  used &= 0xfff;
  raise_to_largest(used);
  return products_are_exact(of_a, of_b, used[0]);
}
/// The same by vectors of 8 numbers.
[[gnu::target("avx2")]] inline bool products_are_exact_avx2(float const* a, float const* b,
                                                            product_extents const& extents) {
  clear_vectors const at_end;
  return products_are_exact_by<eight_words>(a, b, extents);
}

/// 16 columns of a row of sums. Rows are written out where they are used, as not all compilers unroll loops over them.
struct row_of_sums {
  eight_floats first;
  eight_floats second;

  [[gnu::target("avx2,fma"), gnu::always_inline]] void load(float const* from) {
    first = vector_at<eight_floats>(from).value;
    second = vector_at<eight_floats>(from + 8).value;
  }
  /// Adds products, which compilers fuse with sums: they are exact.
  [[gnu::target("avx2,fma"), gnu::always_inline]] void add(float a, row_of_sums const& b) {
    first += a * b.first;
    second += a * b.second;
  }
  [[gnu::target("avx2,fma"), gnu::always_inline]] void store(float* to) const {
    vector_at<eight_floats>(to).value = first;
    vector_at<eight_floats>(to + 8).value = second;
  }
};

/// Four rows and 16 columns from where a, b and sums begin.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void add_exact_rows_avx2(float const* a, float const* b,
                                                                                float* sums,
                                                                                product_extents const& extents) {
  std::int64_t const depth = extents.depth;
  std::int64_t const columns = extents.columns;
  row_of_sums own[4];
  own[0].load(sums);
  own[1].load(sums + columns);
  own[2].load(sums + 2 * columns);
  own[3].load(sums + 3 * columns);
  for (std::int64_t k = 0; k < depth; ++k) {
    row_of_sums values;
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
/// Adds exact products. Rows are a multiple of 4, and columns of 16.
[[gnu::target("avx2,fma")]] inline void add_exact_products_avx2(float const* a, float const* b, float* sums,
                                                                product_extents const& extents) {
  clear_vectors const at_end;
  for (int column = 0; column < extents.columns; column += 16) {
    for (int row = 0; row < extents.rows; row += 4) {
      add_exact_rows_avx2(a + row * extents.depth, b + column, sums + row * extents.columns + column, extents);
    }
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera

#endif
