// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The widening of codes for groups of CUDA threads. A thread takes 16 slots of a row: bytes are 16 bytes of which each
/// word has the codes of four tokens, two for each half of the 16.
#pragma once

#include <cstdint>

#include <tessera/tile/codes/code_widening.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>

namespace tessera {
inline namespace v0 {

/// Widening by instructions on pairs, 16 codes for each thread at a time.
template <class Code, CudaGroup G>
struct code_widening<Code, G> {
  /// What products with widened codes are to be multiplied by.
  __device__ static constexpr float unit() {
    if constexpr (sizeof(Code) == 1) {
      return widened_pairs<Code>::unit();
    } else {
      return 1.0F;
    }
  }
  /// Widens all codes of a tile. Rows of all tiles begin at multiples of 16 bytes.
  template <class From, class To, int Tiles>
  __device__ __forceinline__ static void widen(G const& group, From const& from, To (&to)[Tiles]) {
    static_assert(From::rows == Tiles * To::rows && From::columns == To::columns && From::columns % 16 == 0,
                  "tessera: widened tiles have the rows of the tile of codes, and whole 16s of columns");
    constexpr int pieces = From::columns / 16;  // of a row
    constexpr int count = From::rows * pieces;
    if constexpr (G::size % pieces == 0 && count % G::size == 0 && To::rows % (G::size / pieces) == 0) {
      widen_columns<G::size / pieces>(from, to, group.lane / pieces, group.lane % pieces * 16);
    } else {
#pragma unroll
      for (int first = 0; first < count; first += G::size) {
        int const i = first + group.lane;
        if (count % G::size == 0 || i < count) {
          int const row = i / pieces;
          piece held;
          held.load(from.values + row * From::stride + i % pieces * 16);
          held.store(to[row / To::rows].values + row % To::rows * To::stride + i % pieces * 16);
        }
      }
    }
  }

 private:
  static_assert(sizeof(Code) <= 2, "tessera: codes have 8 or 16 bits");
  /// 16 codes.
  struct piece {
    static constexpr int vectors = static_cast<int>(sizeof(Code));
    uint4 codes[vectors];

    __device__ __forceinline__ void load(Code const* from) {
#pragma unroll
      for (int i = 0; i < vectors; ++i) {
        codes[i] = reinterpret_cast<uint4 const*>(from)[i];
      }
    }
    /// Widens the codes, which then lie in the order of tokens: 0 to 7, 8 to 15.
    __device__ __forceinline__ void store(widened_code<Code>* to) const {
      auto* const halves = reinterpret_cast<uint4*>(to);
      if constexpr (vectors == 1) {
        uint2 const a = widened_pairs<Code>::of(codes[0].x);
        uint2 const b = widened_pairs<Code>::of(codes[0].y);
        uint2 const c = widened_pairs<Code>::of(codes[0].z);
        uint2 const d = widened_pairs<Code>::of(codes[0].w);
        halves[0] = {a.x, b.x, c.x, d.x};
        halves[1] = {a.y, b.y, c.y, d.y};
      } else {
        halves[0] = {codes[0].x, codes[0].z, codes[1].x, codes[1].z};
        halves[1] = {codes[0].y, codes[0].w, codes[1].y, codes[1].w};
      }
    }
  };
  /// Widens the pieces of a thread, which lie RowsApart rows below each other, so that where they lie is known from the
  /// first. Several are loaded before the first is stored.
  template <int RowsApart, class From, class To, int Tiles>
  __device__ __forceinline__ static void widen_columns(From const& from, To (&to)[Tiles], int row, int column) {
    constexpr int count = From::rows / RowsApart;
    constexpr int at_a_time = count % 4 == 0 ? 4 : 1;
    Code const* const first = from.values + row * From::stride + column;
    int const target = row * To::stride + column;
#pragma unroll
    for (int i = 0; i < count; i += at_a_time) {
      piece held[at_a_time];
#pragma unroll
      for (int k = 0; k < at_a_time; ++k) {
        held[k].load(first + (i + k) * RowsApart * From::stride);
      }
#pragma unroll
      for (int k = 0; k < at_a_time; ++k) {
        constexpr int rows_of_tile = To::rows;
        int const below = (i + k) * RowsApart;
        held[k].store(to[below / rows_of_tile].values + below % rows_of_tile * To::stride + target);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
