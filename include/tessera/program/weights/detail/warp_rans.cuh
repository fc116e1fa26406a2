// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Pops pairs as pair_coder::pop does, for 32 lanes that share one stream of words: the inner loop of the CUDA decoder.
///
/// A step is a look-up, a multiplication, a ballot, a second look-up: about 18 instructions and 125 cycles for 64
/// weights.
#pragma once

#include <cstdint>

#include <tessera/program/weights/codebook.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// A lane of a warp that pops symbols from a stream of words that all lanes share.
struct popping_lanes {
  std::uint32_t state;        ///< state of the lane's coder
  std::uint32_t cursor;       ///< shared address of the next word
  std::uint32_t table_begin;  ///< shared address of 4096 entries, see entry()
  std::uint32_t below;        ///< mask of the lanes below this one

  /// An entry: frequency << 20 | second code << 16 | (slot - cumulative) << 4 | first code, so that `row` extracts both
  /// codes at once.
  TESSERA_FN static constexpr std::uint32_t entry(std::uint32_t frequency, std::uint32_t offset, std::uint32_t symbol) {
    return (frequency << 20) | ((symbol >> 4) << 16) | (offset << 4) | (symbol & 15);
  }

  /// The next pairs of this lane, each as first code | second code << 16.
  template <int Pairs>
  __device__ __forceinline__ void row(std::uint32_t (&codes)[Pairs]) {
#pragma unroll
    for (int pair = 0; pair < Pairs; ++pair) {
      std::uint32_t const found = load_shared_u32(table_address<pair_coder::probability_bits>(table_begin, state));
      state = (found >> 20) * (state >> pair_coder::probability_bits) + ((found >> 4) & 0xfffu);
      bool const wants = pair_coder::wants_word(state);
      std::uint32_t const mask = ballot_of_warp(wants);
      std::uint32_t const word = load_shared_u16(multiply_add(__popc(mask & below), 2, cursor));
      state = wants ? (state << 16) | word : state;
      cursor = multiply_add(__popc(mask), 2, cursor);
      codes[pair] = found & 0x000f000fu;
    }
  }
};

}  // namespace v0
}  // namespace tessera
