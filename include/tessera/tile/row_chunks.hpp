// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `row_chunks<T>`: the rows of a matrix in memory as chunks of 16 bytes, for programs whose lanes read or write rows
/// by themselves. Where rows lie at multiples of 16 bytes a chunk moves at once, elsewhere element by element.
///
///     row_chunks<bfloat16 const> const rows{matrix};
///     tile_chunk<bfloat16> const eight = rows.load(row, column);    // zeros beyond the last column
///     row_chunks<float>{outputs}.store(row, column, chunk);         // nothing beyond the last column
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// T: the type of elements, const where they are only read.
template <class T>
struct row_chunks {
  using value_type = std::remove_const_t<T>;
  using chunk_type = tile_chunk<value_type>;     ///< 16 bytes of a row
  static constexpr int size = chunk_type::size;  ///< elements of a chunk

  matrix_view<T> matrix;  ///< rows x columns, of any strides

  /// Whether chunks that begin at multiples of `size` columns lie at multiples of 16 bytes.
  TESSERA_FN bool is_aligned() const {
    return matrix.stride(1) == 1 && (matrix.stride(0) % size == 0 || matrix.extent(0) == 1) &&
           reinterpret_cast<std::uintptr_t>(matrix.data) % 16 == 0;
  }
  /// Whether the chunk at a column lies inside of the row, and at a multiple of 16 bytes.
  TESSERA_FN bool is_whole(std::int64_t column) const {
    return is_aligned() && column % size == 0 && column + size <= matrix.extent(1);
  }
  /// The chunks of a row from a column on, one behind the other, where they are whole.
  TESSERA_FN auto* whole(std::int64_t row, std::int64_t column) const {
    using pointer = std::conditional_t<std::is_const_v<T>, chunk_type const*, chunk_type*>;
    return reinterpret_cast<pointer>(matrix.data + row * matrix.stride(0) + column);
  }
  /// A chunk as compilers for GPUs move it at once: elements of fewer bits they move one by one.
  struct alignas(16) words {
    std::uint32_t values[4];  ///< the bytes in their order
  };
  /// A chunk in memory.
  TESSERA_FN static chunk_type moved(chunk_type const* from) {
    return bit_cast<chunk_type>(*reinterpret_cast<words const*>(from));
  }
  /// The elements of a row from a column on, and zeros beyond the last column.
  TESSERA_FN chunk_type load(std::int64_t row, std::int64_t column) const {
    if (is_whole(column)) {
      return moved(whole(row, column));
    }
    chunk_type chunk{};
    for (int i = 0; i < size; ++i) {
      if (column + i < matrix.extent(1)) {
        chunk.values[i] = matrix(row, column + i);
      }
    }
    return chunk;
  }
  /// Writes the elements of a row from a column on, as far as there are columns.
  TESSERA_FN void store(std::int64_t row, std::int64_t column, chunk_type const& chunk) const
      requires(!std::is_const_v<T>) {
    if (is_whole(column)) {
      *reinterpret_cast<words*>(whole(row, column)) = bit_cast<words>(chunk);
      return;
    }
    for (int i = 0; i < size; ++i) {
      if (column + i < matrix.extent(1)) {
        matrix(row, column + i) = chunk.values[i];
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
