// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Splits weights in registers into exponents and bit planes, 16 bytes a lane at a time: the inverse of join_rows.cuh.
///
/// `split_rows<T>` collects the planes of `rows` rows and writes them at once. A pair's exponents come as
/// `first | second << 16`.
#pragma once

#include <cstdint>

#include <tessera/core/precision.hpp>
#include <tessera/program/weights/detail/join_rows.cuh>
#include <tessera/tile/cuda/bytes.cuh>

namespace tessera {
inline namespace v0 {

/// Stores the words of one plane: `Words` 32-bit words a unit, `Rows` rows from `row` on, none past the last row.
template <int Words, int RowsPerUnit, int Rows>
__device__ __forceinline__ void store_plane(std::uint8_t* plane, int row, int last_row, int lane,
                                            std::uint32_t const (&from)[Rows / RowsPerUnit * Words]) {
#pragma unroll
  for (int i = 0; i < Rows / RowsPerUnit; ++i) {
    if (row + i * RowsPerUnit <= last_row) {
      auto* const words = reinterpret_cast<std::uint32_t*>(plane) + ((row / RowsPerUnit + i) * 32 + lane) * Words;
      if constexpr (Words == 2) {
        store_once(reinterpret_cast<uint2*>(words), make_uint2(from[2 * i], from[2 * i + 1]));
      } else {
        store_once(words, from[i]);
      }
    }
  }
}

/// Splits `rows` rows at a time. For bf16 these are two: with four, for which there are not enough registers, encoding
/// took 11 percent longer.
template <class T>
struct split_rows;

/// Splits bf16.
template <>
struct split_rows<bfloat16> {
  static constexpr int rows = 2;
  static constexpr int pairs = join_rows<bfloat16>::pairs;
  std::uint32_t bytes[2 * rows] = {};  ///< signs and mantissas

  __device__ __forceinline__ void row(int which, std::uint32_t const (&words)[4], std::uint32_t (&exponents)[pairs]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      std::uint32_t const first = (words[2 * i] & 0x007f007fu) | ((words[2 * i] >> 8) & 0x00800080u);
      std::uint32_t const second = (words[2 * i + 1] & 0x007f007fu) | ((words[2 * i + 1] >> 8) & 0x00800080u);
      bytes[2 * which + i] = pick_bytes(first, second, 0x6420);
    }
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      exponents[i] = (words[i] >> 7) & 0x00ff00ffu;
    }
  }

  __device__ __forceinline__ void store(std::uint8_t* planes, int, int row, int last_row, int lane) const {
    store_plane<2, 1, rows>(planes, row, last_row, lane, bytes);
  }
};

/// Splits fp16.
template <>
struct split_rows<float16> {
  static constexpr int rows = join_rows<float16>::rows;
  static constexpr int pairs = join_rows<float16>::pairs;
  std::uint32_t low[2 * rows] = {};     ///< eight bits of each weight's residual
  std::uint32_t middle[rows / 2] = {};  ///< two bits of each weight's residual
  std::uint32_t sign[rows / 4] = {};    ///< the highest bit of each weight's residual

  __device__ __forceinline__ void row(int which, std::uint32_t const (&words)[4], std::uint32_t (&exponents)[pairs]) {
    low[2 * which] = pick_bytes(words[0], words[1], 0x6420);
    low[2 * which + 1] = pick_bytes(words[2], words[3], 0x6420);
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      std::uint32_t const two = ((words[i] >> 8) & 3u) | ((words[i] >> 22) & 12u);
      std::uint32_t const one = ((words[i] >> 15) & 1u) | ((words[i] >> 30) & 2u);
      middle[which / 2] |= two << (16 * (which % 2) + 4 * i);
      sign[which / 4] |= one << (8 * (which % 4) + 2 * i);
      exponents[i] = (words[i] >> 10) & 0x001f001fu;
    }
  }

  __device__ __forceinline__ void store(std::uint8_t* planes, int coded, int row, int last_row, int lane) const {
    store_plane<2, 1, rows>(planes, row, last_row, lane, low);
    store_plane<1, 2, rows>(planes + coded, row, last_row, lane, middle);
    store_plane<1, 4, rows>(planes + coded + coded / 4, row, last_row, lane, sign);
  }
};

/// Splits fp32.
template <>
struct split_rows<float> {
  static constexpr int rows = 2;
  static constexpr int pairs = join_rows<float>::pairs;
  std::uint32_t low[2 * rows] = {};  ///< 16 bits of each weight's residual
  std::uint32_t high[rows] = {};     ///< eight bits of each weight's residual

  __device__ __forceinline__ void row(int which, std::uint32_t const (&words)[4], std::uint32_t (&exponents)[pairs]) {
    low[2 * which] = pick_bytes(words[0], words[1], 0x5410);
    low[2 * which + 1] = pick_bytes(words[2], words[3], 0x5410);
    high[which] = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t const byte = ((words[i] >> 24) & 0x80u) | ((words[i] >> 16) & 0x7fu);
      high[which] |= byte << (8 * i);
    }
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      exponents[i] = ((words[2 * i] >> 23) & 0xffu) | ((words[2 * i + 1] >> 7) & 0x00ff0000u);
    }
  }

  __device__ __forceinline__ void store(std::uint8_t* planes, int coded, int row, int last_row, int lane) const {
    store_plane<2, 1, rows>(planes, row, last_row, lane, low);
    store_plane<1, 1, rows>(planes + 2 * coded, row, last_row, lane, high);
  }
};

/// Splits e4m3.
template <>
struct split_rows<float8_e4m3> {
  static constexpr int rows = join_rows<float8_e4m3>::rows;
  static constexpr int pairs = join_rows<float8_e4m3>::pairs;
  std::uint32_t nibbles[2 * rows] = {};  ///< signs and mantissas, four bits each

  __device__ __forceinline__ void row(int which, std::uint32_t const (&words)[4], std::uint32_t (&exponents)[pairs]) {
    std::uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t const residual = (words[i] & 0x07070707u) | ((words[i] >> 4) & 0x08080808u);
      packed[i] = (residual | (residual >> 4)) & 0x00ff00ffu;  // bytes 0 and 2 hold two nibbles each
      std::uint32_t const exponent = (words[i] >> 3) & 0x0f0f0f0fu;
      exponents[2 * i] = pick_bytes(exponent, 0, 0x4140);
      exponents[2 * i + 1] = pick_bytes(exponent, 0, 0x4342);
    }
    nibbles[2 * which] = pick_bytes(packed[0], packed[1], 0x6420);
    nibbles[2 * which + 1] = pick_bytes(packed[2], packed[3], 0x6420);
  }

  __device__ __forceinline__ void store(std::uint8_t* planes, int, int row, int last_row, int lane) const {
    store_plane<2, 1, rows>(planes, row, last_row, lane, nibbles);
  }
};

/// Splits e5m2.
template <>
struct split_rows<float8_e5m2> {
  static constexpr int rows = join_rows<float8_e5m2>::rows;
  static constexpr int pairs = join_rows<float8_e5m2>::pairs;
  std::uint32_t mantissa[rows] = {};  ///< two bits of each weight
  std::uint32_t sign[rows / 2] = {};  ///< one bit of each weight

  __device__ __forceinline__ void row(int which, std::uint32_t const (&words)[4], std::uint32_t (&exponents)[pairs]) {
    mantissa[which] = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t const two = words[i] & 0x03030303u;
      std::uint32_t const one = (words[i] >> 7) & 0x01010101u;
      mantissa[which] |= ((two | (two >> 6) | (two >> 12) | (two >> 18)) & 0xffu) << (8 * i);
      sign[which / 2] |= ((one | (one >> 7) | (one >> 14) | (one >> 21)) & 15u) << (16 * (which % 2) + 4 * i);
      std::uint32_t const exponent = (words[i] >> 2) & 0x1f1f1f1fu;
      exponents[2 * i] = pick_bytes(exponent, 0, 0x4140);
      exponents[2 * i + 1] = pick_bytes(exponent, 0, 0x4342);
    }
  }

  __device__ __forceinline__ void store(std::uint8_t* planes, int coded, int row, int last_row, int lane) const {
    store_plane<1, 1, rows>(planes, row, last_row, lane, mantissa);
    store_plane<1, 2, rows>(planes + coded / 4, row, last_row, lane, sign);
  }
};

}  // namespace v0
}  // namespace tessera
