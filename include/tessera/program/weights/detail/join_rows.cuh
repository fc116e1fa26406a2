// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Joins weights from exponent codes and bit planes in registers: a row (16 bytes) a lane at a time, by type.
///
/// `join_rows<T>` reads the planes of `rows` rows at once, long before they are needed, and then makes one row after
/// the other. A pair of codes comes as `first | second << 16`. Counts are instructions a weight, without the coder's.
#pragma once

#include <cstdint>

#include <tessera/core/precision.hpp>
#include <tessera/entropy/bit_planes.hpp>
#include <tessera/entropy/exponent_window.hpp>
#include <tessera/tile/cuda/bytes.cuh>

namespace tessera {
inline namespace v0 {

/// The exponents of a pair of codes, in the two halves of a word. Contiguous: the window has no exponent from
/// elsewhere. With such an exponent, as tensors with exact zeros have, a pair takes three instructions more (four where
/// exponents are shifted by less than four bits).
template <bool Contiguous>
struct window_exponents {
  std::uint32_t base;    ///< the window's base, in both halves
  std::uint32_t beyond;  ///< what exponents of codes from extra_code on exceed base + code by, modulo 2^32

  /// The exponents of a window that fits the type.
  __device__ explicit window_exponents(exponent_window window)
      : base(window.base * 0x00010001u), beyond(window.extra - window.base - exponent_window::neighbours) {}

  /// The exponents times 2^shift.
  __device__ __forceinline__ std::uint32_t shifted(std::uint32_t codes, int shift) const {
    std::uint32_t const neighbours = multiply_add(codes, 1u << shift, base << shift);
    if constexpr (Contiguous) {
      return neighbours;
    } else {
      // Codes 14 and 15 carry into the bit above their own. A half that borrows from the other gets it back: only their
      // sum matters, and in the sum both halves are exponents again.
      std::uint32_t const carries = codes + 0x00020002u;
      return shift >= 4 ? multiply_add(carries & 0x00100010u, beyond << (shift - 4), neighbours)
                        : multiply_add((carries >> 4) & 0x00010001u, beyond << shift, neighbours);
    }
  }
};

/// Loads the words of one plane: `Words` 32-bit words a unit, `Rows` rows from `row` on. Checked: rows past the last
/// one repeat it.
template <bool Checked, int Words, int RowsPerUnit, int Rows>
__device__ __forceinline__ void load_plane(std::uint8_t const* plane, int row, int last_row, int lane,
                                           std::uint32_t (&into)[Rows / RowsPerUnit * Words]) {
#pragma unroll
  for (int i = 0; i < Rows / RowsPerUnit; ++i) {
    int const wanted = row / RowsPerUnit + i;
    int const unit = Checked ? min(wanted, last_row / RowsPerUnit) : wanted;
    auto const* const words = reinterpret_cast<std::uint32_t const*>(plane) + (unit * 32 + lane) * Words;
    if constexpr (Words == 2) {
      uint2 const pair = load_once(reinterpret_cast<uint2 const*>(words));
      into[2 * i] = pair.x;
      into[2 * i + 1] = pair.y;
    } else {
      into[i] = load_once(words);
    }
  }
}

template <class T>
struct join_rows;

/// 2 instructions a weight: a byte of sign and mantissa is doubled into both bytes of a half, then one selection adds
/// the exponent.
template <>
struct join_rows<bfloat16> {
  static constexpr int rows = 4;
  static constexpr int pairs = 4;
  std::uint32_t bytes[2 * rows];  ///< signs and mantissas

  template <bool Checked>
  __device__ __forceinline__ void load(std::uint8_t const* planes, int, int row, int last_row, int lane) {
    load_plane<Checked, 2, 1, rows>(planes, row, last_row, lane, bytes);
  }

  template <bool Contiguous>
  __device__ __forceinline__ uint4 row(int which, std::uint32_t const (&codes)[pairs],
                                       window_exponents<Contiguous> window) const {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t const doubled = pick_bytes(bytes[2 * which + i / 2], 0, i % 2 == 0 ? 0x1100 : 0x3322);
      words[i] = select_bits(0x807f807fu, doubled, window.shifted(codes[i], 7));
    }
    return {words[0], words[1], words[2], words[3]};
  }
};

/// 6 instructions a weight: low mantissa bytes, two more mantissa bits and the sign come from three planes.
template <>
struct join_rows<float16> {
  static constexpr int rows = 4;
  static constexpr int pairs = 4;
  std::uint32_t low[2 * rows];     ///< eight bits of each weight's residual
  std::uint32_t middle[rows / 2];  ///< two bits
  std::uint32_t sign[rows / 4];    ///< the highest bit

  template <bool Checked>
  __device__ __forceinline__ void load(std::uint8_t const* planes, int coded, int row, int last_row, int lane) {
    load_plane<Checked, 2, 1, rows>(planes, row, last_row, lane, low);
    load_plane<Checked, 1, 2, rows>(planes + coded, row, last_row, lane, middle);
    load_plane<Checked, 1, 4, rows>(planes + coded + coded / 4, row, last_row, lane, sign);
  }

  template <bool Contiguous>
  __device__ __forceinline__ uint4 row(int which, std::uint32_t const (&codes)[pairs],
                                       window_exponents<Contiguous> window) const {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t const bytes = pick_bytes(low[2 * which + i / 2], 0, i % 2 == 0 ? 0x4140 : 0x4342);
      std::uint32_t const two = (middle[which / 2] >> (16 * (which % 2) + 4 * i)) & 15u;
      std::uint32_t const one = (sign[which / 4] >> (8 * (which % 4) + 2 * i)) & 3u;
      words[i] = bytes | ((two * 0x00400100u) & 0x03000300u) | ((one * 0x40008000u) & 0x80008000u) |
                 window.shifted(codes[i], 10);
    }
    return {words[0], words[1], words[2], words[3]};
  }
};

/// 3 instructions a weight: the low half, and the byte above it, whose first bit is the sign.
template <>
struct join_rows<float> {
  static constexpr int rows = 4;
  static constexpr int pairs = 2;
  std::uint32_t low[2 * rows];  ///< 16 bits of each weight's residual
  std::uint32_t high[rows];     ///< eight bits

  template <bool Checked>
  __device__ __forceinline__ void load(std::uint8_t const* planes, int coded, int row, int last_row, int lane) {
    load_plane<Checked, 2, 1, rows>(planes, row, last_row, lane, low);
    load_plane<Checked, 1, 1, rows>(planes + 2 * coded, row, last_row, lane, high);
  }

  template <bool Contiguous>
  __device__ __forceinline__ uint4 row(int which, std::uint32_t const (&codes)[pairs],
                                       window_exponents<Contiguous> window) const {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // The high byte twice: bit 31 is the sign, bits 22 to 16 the mantissa's first bits.
      std::uint32_t const selector = (i % 2 == 0 ? 0x0010u : 0x0032u) | ((4u + i) * 0x1100u);
      std::uint32_t const rest = pick_bytes(low[2 * which + i / 2], high[which], selector);
      std::uint32_t const exponents = window.shifted(codes[i / 2], 0);
      std::uint32_t const exponent = i % 2 == 0 ? exponents << 23 : (exponents >> 16) << 23;
      words[i] = select_bits(0x807fffffu, rest, exponent);
    }
    return {words[0], words[1], words[2], words[3]};
  }
};

/// The exponents of four codes in the four bytes of a word, times 2^Shift.
template <int Shift, bool Contiguous>
__device__ __forceinline__ std::uint32_t four_exponents(std::uint32_t first, std::uint32_t second,
                                                        window_exponents<Contiguous> window) {
  return pick_bytes(window.shifted(first, Shift), window.shifted(second, Shift), 0x6420);
}

/// 3 instructions a weight: nibbles of sign and mantissa are spread to bytes.
template <>
struct join_rows<float8_e4m3> {
  static constexpr int rows = 2;
  static constexpr int pairs = 8;
  std::uint32_t nibbles[2 * rows];  ///< signs and mantissas, four bits each

  template <bool Checked>
  __device__ __forceinline__ void load(std::uint8_t const* planes, int, int row, int last_row, int lane) {
    load_plane<Checked, 2, 1, rows>(planes, row, last_row, lane, nibbles);
  }

  template <bool Contiguous>
  __device__ __forceinline__ uint4 row(int which, std::uint32_t const (&codes)[pairs],
                                       window_exponents<Contiguous> window) const {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t const both = pick_bytes(nibbles[2 * which + i / 2], 0, i % 2 == 0 ? 0x4140 : 0x4342);
      std::uint32_t const spread = (both | (both << 4)) & 0x0f0f0f0fu;
      words[i] = (spread & 0x07070707u) | ((spread & 0x08080808u) << 4) |
                 four_exponents<3>(codes[2 * i], codes[2 * i + 1], window);
    }
    return {words[0], words[1], words[2], words[3]};
  }
};

/// 4 instructions a weight: two mantissa bits and the sign come from two planes.
template <>
struct join_rows<float8_e5m2> {
  static constexpr int rows = 2;
  static constexpr int pairs = 8;
  std::uint32_t mantissa[rows];  ///< two bits of each weight
  std::uint32_t sign[rows / 2];  ///< one bit of each weight

  template <bool Checked>
  __device__ __forceinline__ void load(std::uint8_t const* planes, int coded, int row, int last_row, int lane) {
    load_plane<Checked, 1, 1, rows>(planes, row, last_row, lane, mantissa);
    load_plane<Checked, 1, 2, rows>(planes + coded / 4, row, last_row, lane, sign);
  }

  template <bool Contiguous>
  __device__ __forceinline__ uint4 row(int which, std::uint32_t const (&codes)[pairs],
                                       window_exponents<Contiguous> window) const {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t const two = (mantissa[which] >> (8 * i)) & 0xffu;
      std::uint32_t const one = (sign[which / 2] >> (16 * (which % 2) + 4 * i)) & 15u;
      // Bits 2 j and 2 j + 1 to byte j: by products whose terms do not meet below the mask.
      std::uint32_t const mantissas = (two | (two << 6) | (two << 12) | (two << 18)) & 0x03030303u;
      std::uint32_t const signs = ((one << 7) | (one << 14) | (one << 21) | (one << 28)) & 0x80808080u;
      words[i] = mantissas | signs | four_exponents<2>(codes[2 * i], codes[2 * i + 1], window);
    }
    return {words[0], words[1], words[2], words[3]};
  }
};

}  // namespace v0
}  // namespace tessera
