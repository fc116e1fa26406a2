// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `page_channels`: a part of compress_pages (program/paged_cache/write_pages.cuh). It finds the bounds of the keys of
/// a page, channel by channel, and the parameters by which these keys become codes. The arithmetic is that of
/// program/paged_cache/page_arithmetic.hpp.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/paged_cache/detail/page_lanes.hpp>
#include <tessera/program/paged_cache/page_arithmetic.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/reduce/minimum_maximum.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/pairs.cuh>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The bits of saturated_half().
[[nodiscard]] __device__ __forceinline__ std::uint16_t half_bits_of(float value) {
  constexpr float largest = 65504.0F;
  float const inside = value != value ? value : fminf(fmaxf(value, -largest), largest);
  return static_cast<std::uint16_t>(pack_pair<float16>(inside, inside));
}

}  // namespace detail

/// The parameters of all channels, each at slot_of(). Bits: of a code, at most 4.
template <int Channels, int Bits>
struct page_channels {
  /// The elements that a thread has.
  using lanes_type = page_lanes<Channels>;
  static constexpr int slots = lanes_type::slots;       ///< tokens of a thread
  static constexpr float origin = code_origin(Bits);    ///< the origin of codes
  static constexpr float highest = highest_code(Bits);  ///< the largest code
  /// The bits of a number that counts from the origin, without its fraction.
  static constexpr std::uint32_t whole = 0xffff0000U << (4 - Bits);
  static constexpr std::uint32_t signs = 0x80008000U;  ///< the signs of a pair of fp16
  static constexpr float largest = 65504.0F;           ///< the largest fp16

  float reciprocal[Channels];  ///< 1 / distance from code to code
  float offset[Channels];      ///< the addend after multiplying by `reciprocal`
  float scale[Channels];       ///< distance from code to code
  float base[Channels];        ///< the addend of decoded keys, after multiplying by `scale`

  /// The index of a channel: lower fours of all sixteens first, then the upper ones, so that threads that load together
  /// have all banks.
  [[nodiscard]] __device__ __forceinline__ static int slot_of(int channel) {
    return channel / 8 % 2 * (Channels / 2) + channel / 16 * 8 + channel % 8;
  }
  /// The index of the first four elements of a thread, or of the other four.
  [[nodiscard]] __device__ __forceinline__ static int slot_of(lanes_type const& at, int half) {
    return 4 * at.eight() + (half ^ at.first_four()) * (Channels / 2);
  }

  /// The parameters of four channels.
  struct four {
    float of[4];  ///< one of each channel
  };
  /// Loads four parameters from a slot_of() in one of the lists.
  [[nodiscard]] __device__ __forceinline__ static four four_at(float const* from) {
    float4 const loaded = *reinterpret_cast<float4 const*>(from);
    return {{loaded.x, loaded.y, loaded.z, loaded.w}};
  }
  /// Clamps numbers that count from the origin, before they are encoded: NaN becomes the origin.
  __device__ __forceinline__ static void clamp_numbers(float (&numbers)[slots][8]) {
#pragma unroll
    for (auto& slot : numbers) {
#pragma unroll
      for (float& number : slot) {
        number = fminf(fmaxf(number, origin), origin + highest);
      }
    }
  }

  /// Bounds of a thread's channels over its tokens, in pairs of fp16, without NaNs.
  struct bounds {
    uint4 negative;  ///< upper bounds of -e
    uint4 positive;  ///< upper bounds of e
  };
  /// The bounds of the thread's elements.
  [[nodiscard]] __device__ __forceinline__ static bounds bounds_of(float const (&merged)[slots][8]) {
    std::uint32_t low[4];
    std::uint32_t high[4];
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      std::uint32_t of[slots];
#pragma unroll
      for (int slot = 0; slot < slots; ++slot) {
        of[slot] = pack_pair<float16>(merged[slot][2 * pair], merged[slot][2 * pair + 1]);
      }
      low[pair] = minimum_f16x2(minimum_f16x2(of[0], of[1]), minimum_f16x2(of[2], of[3])) ^ signs;
      high[pair] = maximum_f16x2(maximum_f16x2(of[0], of[1]), maximum_f16x2(of[2], of[3]));
    }
    return {{low[0], low[1], low[2], low[3]}, {high[0], high[1], high[2], high[3]}};
  }
  /// The index of a channel's pair among the four pairs of its thread in a row.
  [[nodiscard]] __device__ __forceinline__ static int pair_of(int row, int channel) {
    lanes_type const from{row * lanes_type::eights + eight_of(channel)};
    return (channel / 8 % 2 ^ from.first_four()) * 2 + channel % 4 / 2;
  }
  /// The thread of a row that has a channel.
  [[nodiscard]] __device__ __forceinline__ static int eight_of(int channel) {
    return channel / 16 * 2 + channel % 8 / 4;
  }

  /// The parameters of a channel, as the page has them.
  struct fitted {
    std::uint16_t scale;    ///< bits of an fp16
    std::uint16_t minimum;  ///< bits of an fp16
    bool is_inside;         ///< whether all keys' numbers are within the codes without clamping
  };
  /// Fits a channel to its bounds, which are NaN where all tokens are retained.
  __device__ __forceinline__ fitted fit(int channel, float low, float high) {
    interval<float> const range = without_signed_zeros({bounded(low), bounded(high)});
    std::uint16_t const distance = detail::half_bits_of((range.maximum - range.minimum) / highest);
    float const step = unpack_pair<float16>(distance).x;
    float const by = reciprocal_of(step);
    float const plus = multiply_add(-range.minimum, by, origin + 0.5F);
    int const slot = slot_of(channel);
    reciprocal[slot] = by;
    offset[slot] = plus;
    scale[slot] = step;
    base[slot] = multiply_add(-origin, step, range.minimum);
    // The lowest and highest that bounds can have been before they were rounded to fp16.
    float const below = range.minimum - multiply_add(absolute(range.minimum), 0x1p-11F, 0x1p-25F);
    float const above = range.maximum + multiply_add(absolute(range.maximum), 0x1p-11F, 0x1p-25F);
    bool const is_inside = multiply_add(below, by, plus) >= origin &&
                           multiply_add(above, by, plus) < origin + (highest + 1.0F) && range.minimum > -largest &&
                           range.maximum < largest;
    return {distance, detail::half_bits_of(range.minimum), is_inside};
  }

 private:
  [[nodiscard]] __device__ __forceinline__ static float bounded(float bound) {
    return bound != bound ? 0.0F : fmaxf(fminf(bound, largest), -largest);
  }
};

}  // namespace v0
}  // namespace tessera
