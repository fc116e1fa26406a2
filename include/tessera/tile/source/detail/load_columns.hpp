// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `load_columns`: loads a tile of a matrix whose columns are contiguous, by one thread: eight columns at a time, which
/// become rows by vectors where elements have 16 bits. With such tiles loaded element by element the exact loss's two
/// passes take 1.67 times as long on one core of a Xeon.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether load_columns() takes a tile: one whose rows lie at a stride from each other.
template <class Tile>
constexpr bool has_columns_by_eights() {
  if constexpr (requires { Tile::stride; }) {
    return Tile::rows % 8 == 0 && Tile::columns % 8 == 0;
  } else {
    return false;
  }
}

#if defined(__CUDACC_RTC__)
#elif __has_builtin(__builtin_shufflevector)

using eight_halves = short __attribute__((vector_size(16)));
/// Eight elements of 16 bits in memory, where they may lie anywhere.
struct __attribute__((packed, may_alias)) stored_halves {
  eight_halves value;  ///< the elements
};

/// Makes two rows of halves of two: elements of one and of the other in turns.
inline void zip_halves(eight_halves const& one, eight_halves const& other, eight_halves* both) {
  both[0] = __builtin_shufflevector(one, other, 0, 8, 1, 9, 2, 10, 3, 11);
  both[1] = __builtin_shufflevector(one, other, 4, 12, 5, 13, 6, 14, 7, 15);
}
/// Makes rows of eight columns of eight elements of 16 bits.
template <class T>
void exchange_halves(T const* const (&from)[8], int first, T* to, int stride) {
  eight_halves columns[8];
  eight_halves pairs[8];  // of columns c and c + 4
  eight_halves fours[8];  // of columns c, c + 2, c + 4 and c + 6
  eight_halves rows[8];
  for (int c = 0; c < 8; ++c) {
    columns[c] = reinterpret_cast<stored_halves const*>(from[c] + first)->value;
  }
  for (int i = 0; i < 4; ++i) {
    zip_halves(columns[i], columns[i + 4], &pairs[2 * i]);
  }
  for (int i = 0; i < 4; ++i) {
    zip_halves(pairs[i], pairs[i + 4], &fours[2 * i]);
  }
  for (int i = 0; i < 4; ++i) {
    zip_halves(fours[i], fours[i + 4], &rows[2 * i]);
  }
  for (int row = 0; row < 8; ++row) {
    reinterpret_cast<stored_halves*>(to + row * stride)->value = rows[row];
  }
}

#endif

/// The same element by element.
template <class T>
void exchange_plainly(T const* const (&from)[8], int first, T* to, int stride) {
  for (int row = 0; row < 8; ++row) {
    for (int column = 0; column < 8; ++column) {
      to[row * stride + column] = from[column][first + row];
    }
  }
}

/// Makes rows of eight columns, from element `first` of each on.
template <class T>
void exchange_eight(T const* const (&from)[8], int first, T* to, int stride) {
#if defined(__CUDACC_RTC__)
  exchange_plainly(from, first, to, stride);
#elif __has_builtin(__builtin_shufflevector)
  if constexpr (sizeof(T) == 2) {
    exchange_halves(from, first, to, stride);
  } else {
    exchange_plainly(from, first, to, stride);
  }
#else
  exchange_plainly(from, first, to, stride);
#endif
}

/// `rows`: elements of a column. column_at(j): where column j of the tile begins; null: it is zeros.
template <class Tile, class ColumnAt>
void load_columns(Tile& tile, std::int64_t first_row, std::int64_t rows, ColumnAt const& column_at) {
  using element = typename Tile::value_type;
  for (int column = 0; column < Tile::columns; column += 8) {
    element padded[8][Tile::rows];
    element const* from[8];
    for (int i = 0; i < 8; ++i) {
      element const* const own = column_at(column + i);
      if (own != nullptr && first_row >= 0 && first_row + Tile::rows <= rows) {
        from[i] = own + first_row;
        continue;
      }
      for (int row = 0; row < Tile::rows; ++row) {
        bool const is_inside = own != nullptr && first_row + row >= 0 && first_row + row < rows;
        padded[i][row] = is_inside ? own[first_row + row] : element{};
      }
      from[i] = padded[i];
    }
    for (int row = 0; row < Tile::rows; row += 8) {
      exchange_eight(from, row, &tile(row, column), Tile::stride);
    }
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
