// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The look-up table of popping_lanes, in a thread block's shared memory, made from a stream's codebook.
#pragma once

#include <cstdint>

#include <tessera/program/weights/codebook.hpp>
#include <tessera/program/weights/detail/warp_rans.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

struct pair_table {
  static constexpr int symbols = 256;  ///< pairs of exponent codes

  std::uint32_t entries[pair_coder::slots];  ///< entries by slot, in the order of rans_coder
  std::uint32_t part[symbols];               ///< frequency << 16 | cumulative frequency of each symbol
  int is_sound;                              ///< whether frequencies are valid

  /// Reads the codebook, if there is any, eight symbols (16 bytes) a lane, as they are in the stream. One warp.
  __device__ __forceinline__ void read(int lane, uint4 packed, bool header_is_sound, bool has_codebook) {
    std::uint32_t const words[4] = {packed.x, packed.y, packed.z, packed.w};
    std::uint32_t sum = 0;
    bool each_fits = header_is_sound;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      std::uint32_t const frequency = frequency_of(words, i);
      each_fits = each_fits && frequency < pair_coder::slots;
      sum += frequency;
    }
    std::uint32_t const upto = inclusive_sum(lane, sum);
    std::uint32_t below = upto - sum;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      std::uint32_t const frequency = frequency_of(words, i);
      part[8 * lane + i] = (frequency << 16) | (below & 0xffffu);
      below += frequency;
    }
    bool const adds_up = shuffle(upto, 31) == pair_coder::slots || !has_codebook;
    bool const sound = all_of_warp(each_fits) && adds_up;
    if (lane == 0) {
      is_sound = sound ? 1 : 0;
    }
  }

  /// Writes the entries, after a sound codebook was read and the group was synced. All warps together.
  template <int Warps>
  __device__ __forceinline__ void fill(int warp, int lane) {
#pragma unroll 1
    for (int symbol = warp; symbol < symbols; symbol += Warps) {
      std::uint32_t const frequency = part[symbol] >> 16;
      std::uint32_t const first = part[symbol] & 0xffffu;
#pragma unroll 1
      for (std::uint32_t offset = lane; offset < frequency; offset += 32) {
        entries[first + offset] = popping_lanes::entry(frequency, offset, static_cast<std::uint32_t>(symbol));
      }
    }
  }

 private:
  __device__ __forceinline__ static std::uint32_t frequency_of(std::uint32_t const (&words)[4], int index) {
    return (words[index / 2] >> (16 * (index % 2))) & 0xffffu;
  }
  __device__ __forceinline__ static std::uint32_t inclusive_sum(int lane, std::uint32_t value) {
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      std::uint32_t const below = shuffle_up(value, distance);
      value += lane >= distance ? below : 0;
    }
    return value;
  }
};

}  // namespace v0
}  // namespace tessera
