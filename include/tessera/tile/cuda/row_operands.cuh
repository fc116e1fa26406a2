// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Loads and multiplies pieces of rows as operands of tensor cores, laid out as in tile/row_operands.hpp, for a warp's
/// lanes.
#pragma once

#include <cstdint>

#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/mma.cuh>
#include <tessera/tile/row_operands.hpp>

namespace tessera {
inline namespace v0 {

/// A lane's pieces of a row of `Numbers` numbers that is summed over.
template <int Numbers>
struct row_words {
  static constexpr int blocks = Numbers / 32;  ///< blocks of 32 numbers
  static_assert(Numbers % 32 == 0, "tessera: rows have whole blocks of 32 numbers");

  uint4 words[blocks];  ///< the lane's 8 numbers of each block

  /// Loads the pieces; null gives a row of zeros. The row begins at a multiple of 16 bytes and is not read again soon.
  template <class T>
  __device__ __forceinline__ void load(T const* row, int lane) {
    static_assert(sizeof(T) == 2);
    auto const* const pieces = reinterpret_cast<uint4 const*>(row);
#pragma unroll
    for (int block = 0; block < blocks; ++block) {
      words[block] = row != nullptr ? load_once(pieces + row_piece(lane, block)) : uint4{0, 0, 0, 0};
    }
  }
};

/// Adds products over 32 numbers of 16 rows and 8 columns: `first` has rows g and `second` rows g + 8.
template <class T>
__device__ __forceinline__ void multiply_pieces(float (&sums)[4], uint4 const& first, uint4 const& second,
                                                uint4 const& column) {
  warp_mma<T>::multiply(sums, {first.x, second.x, first.y, second.y}, {column.x, column.y});
  warp_mma<T>::multiply(sums, {first.z, second.z, first.w, second.w}, {column.z, column.w});
}

/// Word `which` / 2 of a piece.
__device__ __forceinline__ std::uint32_t word_of(uint4 const& piece, int which) {
  return which < 4 ? (which < 2 ? piece.x : piece.y) : (which < 6 ? piece.z : piece.w);
}

/// Adds products over 16 rows, eight tiles of them. A lane has pieces g of rows 2t, 2t + 1, 2t + 8 and 2t + 9.
template <class T>
__device__ __forceinline__ void multiply_rows(float (*sums)[4], std::uint32_t const (&weights)[4],
                                              uint4 const (&rows)[4]) {
#pragma unroll
  for (int tile = 0; tile < piece_numbers; ++tile) {
    std::uint32_t const halves = tile % 2 == 0 ? 0x5410U : 0x7632U;
    warp_mma<T>::multiply(sums[tile], weights,
                          {pick_bytes(word_of(rows[0], tile), word_of(rows[1], tile), halves),
                           pick_bytes(word_of(rows[2], tile), word_of(rows[3], tile), halves)});
  }
}

/// The sum of the values of the four lanes that have the same row.
__device__ __forceinline__ float sum_of_row(float value) {
  value += __shfl_xor_sync(0xffffffffU, value, 1);
  return value + __shfl_xor_sync(0xffffffffU, value, 2);
}

}  // namespace v0
}  // namespace tessera
