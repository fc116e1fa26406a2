// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A running sum over tiles that thread blocks finish in any order, by decoupled look-back.
///
/// Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back" (NVIDIA NVR-2016-002). Every tile
/// has a word: empty, the tile's own sum, or the sum of all tiles up to it. A tile publishes its own sum, adds up the
/// words before it until it meets one of the last kind, and publishes one of that kind itself. Words must be zero
/// before the launch. Tiles must be taken in order (by a counter), so that no tile waits for one that has not begun.
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// The word of a tile: its kind in the two highest bits, 0 for empty.
struct look_back_word {
  static constexpr int value_bits = 62;  ///< bits of the sum
  /// The kind of a word with the sum of this tile alone.
  static constexpr std::uint64_t own_sum = std::uint64_t{1} << value_bits;
  /// The kind of a word with the sum of all tiles up to this one.
  static constexpr std::uint64_t sum_up_to_here = std::uint64_t{2} << value_bits;
  static constexpr std::uint64_t value_mask = own_sum - 1;  ///< the bits of the sum

  /// Writes kind and sum as one word, visible to all of the device.
  __device__ __forceinline__ static void publish(std::uint64_t* word, std::uint64_t kind, std::uint64_t value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(kind | value) : "memory");
  }
  /// Reads kind and sum as one word.
  __device__ __forceinline__ static std::uint64_t read(std::uint64_t const* word) {
    std::uint64_t value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
  }
};

/// The sum of all tiles before `tile`, for all lanes of the one warp that calls this. words: the words of all tiles;
/// own: the tile's sum, below 2^62.
__device__ __forceinline__ std::uint64_t look_back(std::uint64_t* words, std::int64_t tile, std::uint64_t own,
                                                   int lane) {
  if (tile == 0) {
    if (lane == 0) {
      look_back_word::publish(words, look_back_word::sum_up_to_here, own);
    }
    return 0;
  }
  if (lane == 0) {
    look_back_word::publish(words + tile, look_back_word::own_sum, own);
  }
  std::uint64_t before = 0;
  // Lane i looks at tile nearest - i; lanes before the first tile see 0 as a sum of all tiles up to theirs.
  for (std::int64_t nearest = tile - 1;; nearest -= 32) {
    std::int64_t const mine = nearest - lane;
    std::uint64_t word = look_back_word::sum_up_to_here;
    do {
      word = mine >= 0 ? look_back_word::read(words + mine) : look_back_word::sum_up_to_here;
    } while (__any_sync(0xffffffffu, (word >> look_back_word::value_bits) == 0));
    bool const is_total = (word >> look_back_word::value_bits) == 2;
    unsigned const totals = __ballot_sync(0xffffffffu, is_total);
    int const last = totals != 0 ? __ffs(static_cast<int>(totals)) - 1 : 31;
    std::uint64_t part = lane <= last ? word & look_back_word::value_mask : 0;
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      part += __shfl_xor_sync(0xffffffffu, part, distance);
    }
    before += part;
    if (totals != 0) {
      break;
    }
  }
  if (lane == 0) {
    look_back_word::publish(words + tile, look_back_word::sum_up_to_here, before + own);
  }
  return before;
}

}  // namespace v0
}  // namespace tessera
