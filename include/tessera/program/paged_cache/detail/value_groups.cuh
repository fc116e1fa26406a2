// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `page_value_groups`: a part of compress_pages (program/paged_cache/write_pages.cuh). It finds the ranges of groups
/// of a token's value, and their codes. The arithmetic is that of program/paged_cache/page_arithmetic.hpp.
#pragma once

#include <cstdint>

#include <tessera/core/math.hpp>
#include <tessera/program/paged_cache/detail/key_channels.cuh>
#include <tessera/program/paged_cache/detail/page_lanes.hpp>
#include <tessera/program/paged_cache/detail/page_source.cuh>
#include <tessera/program/paged_cache/page_arithmetic.hpp>
#include <tessera/reduce/minimum_maximum.hpp>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// Groups of a value's channels, of codes of `Bits` bits. Elements: page_elements.
template <class Elements, int Groups, int Bits>
struct page_value_groups {
  /// The elements that a thread has.
  using lanes_type = typename Elements::lanes_type;
  static constexpr int slots = lanes_type::slots;                  ///< tokens of a thread
  static constexpr int group_lanes = lanes_type::eights / Groups;  ///< lanes of a token and group

  /// The range of the group that the thread's channels are in, for its token in slot 0.
  [[nodiscard]] __device__ __forceinline__ static interval<float> range_of(float const (&merged)[slots][8]) {
    float low[slots];
    float high[slots];
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      low[slot] = merged[slot][0];
      high[slot] = merged[slot][0];
#pragma unroll
      for (int j = 1; j < 8; ++j) {
        low[slot] = fminf(low[slot], merged[slot][j]);
        high[slot] = fmaxf(high[slot], merged[slot][j]);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      low[i] = fminf(low[i], shuffle_xor(low[2 + i], 1));
      high[i] = fmaxf(high[i], shuffle_xor(high[2 + i], 1));
    }
    interval<float> range{fminf(low[0], shuffle_xor(low[1], 2)), fmaxf(high[0], shuffle_xor(high[1], 2))};
#pragma unroll
    for (int distance = 4; distance < group_lanes; distance *= 2) {
      range.minimum = fminf(range.minimum, shuffle_xor(range.minimum, distance));
      range.maximum = fmaxf(range.maximum, shuffle_xor(range.maximum, distance));
    }
    return without_signed_zeros(range);
  }

  /// Makes codes of all slots, four in a word; `reciprocal` and `offset` are those of the token of slot 0. Returns the
  /// sums of this token's codes and of their squares in the upper and in the lower half of a word.
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t make_codes(float (&merged)[slots][8], float reciprocal,
                                                                           float offset, bool is_finite,
                                                                           std::uint32_t (&codes)[slots][2]) {
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      int const away = lanes_type::distance_to(slot);
      float const by = slot == 0 ? reciprocal : shuffle_xor(reciprocal, away);
      float const plus = slot == 0 ? offset : shuffle_xor(offset, away);
#pragma unroll
      for (float& number : merged[slot]) {
        number = multiply_add(number, by, plus);
      }
    }
    if (!is_finite) {
      page_channels<lanes_type::eights * 8, Bits>::clamp_numbers(merged);
    }
    std::uint32_t sums[slots];
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      float const(&own)[8] = merged[slot];
      codes[slot][0] = Elements::template four_codes<Bits>(own[0], own[1], own[2], own[3]);
      codes[slot][1] = Elements::template four_codes<Bits>(own[4], own[5], own[6], own[7]);
      std::uint32_t const squares = __dp4a(codes[slot][0], codes[slot][0], __dp4a(codes[slot][1], codes[slot][1], 0U));
      std::uint32_t const sum = __dp4a(codes[slot][0], 0x01010101U, __dp4a(codes[slot][1], 0x01010101U, 0U));
      sums[slot] = sum * 0x10000U + squares;
    }
    return Elements::template sum_of_row<group_lanes>(sums);
  }
};

}  // namespace v0
}  // namespace tessera
