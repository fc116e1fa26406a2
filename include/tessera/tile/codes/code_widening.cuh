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
#pragma unroll
    for (int first = 0; first < count; first += G::size) {
      int const i = first + group.lane;
      if (count % G::size == 0 || i < count) {
        int const row = i / pieces;
        widen_piece(from.values + row * From::stride + i % pieces * 16,
                    to[row / To::rows].values + row % To::rows * To::stride + i % pieces * 16);
      }
    }
  }

 private:
  /// Widens 16 codes.
  __device__ __forceinline__ static void widen_piece(Code const* from, widened_code<Code>* to) {
    static_assert(sizeof(Code) <= 2, "tessera: codes have 8 or 16 bits");
    uint4 first;   // tokens 0 to 7
    uint4 second;  // tokens 8 to 15
    if constexpr (sizeof(Code) == 1) {
      uint4 const codes = *reinterpret_cast<uint4 const*>(from);
      uint2 const a = widened_pairs<Code>::of(codes.x);
      uint2 const b = widened_pairs<Code>::of(codes.y);
      uint2 const c = widened_pairs<Code>::of(codes.z);
      uint2 const d = widened_pairs<Code>::of(codes.w);
      first = {a.x, b.x, c.x, d.x};
      second = {a.y, b.y, c.y, d.y};
    } else {
      uint4 const low = reinterpret_cast<uint4 const*>(from)[0];
      uint4 const high = reinterpret_cast<uint4 const*>(from)[1];
      first = {low.x, low.z, high.x, high.z};
      second = {low.y, low.w, high.y, high.w};
    }
    reinterpret_cast<uint4*>(to)[0] = first;
    reinterpret_cast<uint4*>(to)[1] = second;
  }
};

}  // namespace v0
}  // namespace tessera
