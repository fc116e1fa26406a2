// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How lanes of programs for few rows make weights of a coded matrix (tile/source/coded_weights.hpp): eight of a row at
/// a time, of which weights k and k + 4 are joined, because their codes lie 16 bits apart: a pair of exponents is one
/// bitwise operation and one multiply-add. Inputs are paired alike.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/entropy/exponent_window.hpp>
#include <tessera/tile/cuda/bytes.cuh>

namespace tessera {
inline namespace v0 {

/// Makes the exponents of two codes that are 16 bits apart, at their places in two weights.
template <bool Contiguous>
struct exponents_of_pairs {
  std::uint32_t base;    ///< of the window, at both places
  std::uint32_t beyond;  ///< what exponents from extra_code on exceed base + code by, modulo 2^32

  /// Of the codes of a window.
  __device__ __forceinline__ explicit exponents_of_pairs(exponent_window window)
      : base(window.base * 0x00800080U),
        beyond((std::uint32_t{window.extra} - window.base - exponent_window::neighbours) * 0x80U) {}

  /// Of the codes number k and k + 4 of eight, for k = 0 and 1: their bits are 4 k to 4 k + 3 of both halves.
  template <int K>
  __device__ __forceinline__ std::uint32_t of_pair(std::uint32_t codes) const {
    std::uint32_t const pair = codes & (0x000f000fU << 4 * K);
    std::uint32_t const sum = multiply_add(pair, 0x80U >> 4 * K, base);
    if constexpr (Contiguous) {
      return sum;
    } else {
      std::uint32_t const is_beyond = (pair + (0x00020002U << 4 * K)) >> (4 + 4 * K) & 0x00010001U;
      return multiply_add(is_beyond, beyond, sum);
    }
  }
};

/// Pairs eight inputs as join_codes() pairs weights.
__device__ __forceinline__ void pair_inputs_of_codes(uint4 const& read, std::uint32_t (&pairs)[4]) {
  pairs[0] = pick_bytes(read.x, read.z, 0x5410);
  pairs[1] = pick_bytes(read.x, read.z, 0x7632);
  pairs[2] = pick_bytes(read.y, read.w, 0x5410);
  pairs[3] = pick_bytes(read.y, read.w, 0x7632);
}

/// Joins a lane's eight weights of a row: weights k and k + 4 to pair k.
template <bool Contiguous>
__device__ __forceinline__ void join_codes(exponents_of_pairs<Contiguous> const& exponents, uint2 residuals,
                                           std::uint32_t codes, std::uint32_t (&pairs)[4]) {
  // Bit 4 i + 3 is set if code i is escape_code: its low three bits carry.
  std::uint32_t const escapes = ((codes & 0x77777777U) + 0x11111111U) & codes & 0x88888888U;
  std::uint32_t const second = codes >> 8;
  pairs[0] = exponents.template of_pair<0>(codes);
  pairs[1] = exponents.template of_pair<1>(codes);
  pairs[2] = exponents.template of_pair<0>(second);
  pairs[3] = exponents.template of_pair<1>(second);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    pairs[k] |= pick_bytes(residuals.x, residuals.y, 0x4400 + 0x1111 * k) & 0x807f807fU;
  }
  if (escapes != 0) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      std::uint32_t const stands =
          (pick_bytes(residuals.x, residuals.y, 0x4400 + 0x1111 * k) & 0x80008000U) | 0x00800080U;
      pairs[k] = select_bits((escapes >> (4 * k + 3) & 0x00010001U) * 0xffffU, stands, pairs[k]);
    }
  }
}

}  // namespace v0
}  // namespace tessera
