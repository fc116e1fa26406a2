// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `widened_codes_product`: products of few rows with exact codes (tile/source/scaled_source.hpp) that a lane widens
/// where it has read them: eight of a row at a time, for eight inputs.
#pragma once

#include <cstdint>

#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/mma.cuh>
#include <tessera/tile/source/scaled_source.hpp>

namespace tessera {
inline namespace v0 {

/// Operand: bfloat16 or float16. B: the weights. Tokens: rows of the inputs.
template <class Operand, OperandCodes B, int Tokens>
struct widened_codes_product {
  static constexpr int codes_of_word = 32 / B::code_bits;  ///< codes in 32 bits
  static constexpr int pairs_of_word = codes_of_word / 2;  ///< pairs of them
  static constexpr int bytes = B::code_bits;               ///< of a lane's eight codes
  /// A lane's eight codes of a row.
  struct alignas(bytes) lane_codes {
    std::uint32_t words[bytes / 4];  ///< the codes, the first in the lowest bits
  };

  /// Pairs eight inputs as codes are.
  __device__ __forceinline__ static void pair_inputs(uint4 const& read, std::uint32_t (&to)[4]) {
    std::uint32_t const words[4] = {read.x, read.y, read.z, read.w};
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      int const first = pair % pairs_of_word + pair / pairs_of_word * codes_of_word;
      int const second = first + pairs_of_word;
      to[pair] = pick_bytes(words[first / 2], words[second / 2], first % 2 == 0 ? 0x5410 : 0x7632);
    }
  }

  /// Multiplies eight codes of either row.
  __device__ __forceinline__ static void multiply_codes(lane_codes const& upper, lane_codes const& lower,
                                                        std::uint32_t const (&inputs)[Tokens / 8][4],
                                                        float (&sums)[Tokens / 8][4]) {
    constexpr int words = bytes / 4;
    std::uint32_t of_upper[words][pairs_of_word];
    std::uint32_t of_lower[words][pairs_of_word];
#pragma unroll
    for (int word = 0; word < words; ++word) {
      B::widen(cuda_warp{}, upper.words[word], of_upper[word]);
      B::widen(cuda_warp{}, lower.words[word], of_lower[word]);
    }
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
      int const word = k / pairs_of_word;
      int const pair = k % pairs_of_word;
      std::uint32_t const weights[4] = {of_upper[word][pair], of_lower[word][pair], of_upper[word][pair + 1],
                                        of_lower[word][pair + 1]};
#pragma unroll
      for (int n = 0; n < Tokens / 8; ++n) {
        warp_mma<Operand>::multiply(sums[n], weights, {inputs[n][k], inputs[n][k + 1]});
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
