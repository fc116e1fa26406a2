// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Bit planes with AVX2: converts 32 numbers at a time between the bits that a stream stores and one byte each.
///
/// For the block steps (program/weights/block_avx2.hpp). Empty on other architectures.
#pragma once

#include <cstdint>
#include <cstring>

#include <tessera/entropy/bit_planes.hpp>

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Operations on 32 numbers of one byte each, and on the bits in which they are stored.
struct avx2_bytes {
  [[gnu::target("avx2"), gnu::always_inline]] static __m256i load(void const* bytes) {
    return _mm256_loadu_si256(static_cast<__m256i const*>(bytes));
  }
  [[gnu::target("avx2"), gnu::always_inline]] static void store(void* bytes, __m256i vector) {
    _mm256_storeu_si256(static_cast<__m256i*>(bytes), vector);
  }
  [[gnu::target("avx2"), gnu::always_inline]] static __m128i load_half(void const* bytes) {
    return _mm_loadu_si128(static_cast<__m128i const*>(bytes));
  }
  [[gnu::target("avx2"), gnu::always_inline]] static void store_half(void* bytes, __m128i vector) {
    _mm_storeu_si128(static_cast<__m128i*>(bytes), vector);
  }
  [[gnu::target("avx2"), gnu::always_inline]] static __m128i load_quarter(void const* bytes) {
    return _mm_loadl_epi64(static_cast<__m128i const*>(bytes));
  }

  template <int Count>
  [[gnu::target("avx2"), gnu::always_inline]] static __m256i shift_left(__m256i bytes) {
    constexpr unsigned left = (0xffu << Count) & 0xffu;
    return Count == 0 ? bytes
                      : _mm256_and_si256(_mm256_slli_epi16(bytes, Count), _mm256_set1_epi8(static_cast<char>(left)));
  }

  template <int Count>
  [[gnu::target("avx2"), gnu::always_inline]] static __m256i shift_right(__m256i bytes) {
    return Count == 0
               ? bytes
               : _mm256_and_si256(_mm256_srli_epi16(bytes, Count), _mm256_set1_epi8(static_cast<char>(0xff >> Count)));
  }

  /// Expands 32 numbers of Width bits, one after the other, to bytes.
  template <int Width>
  [[gnu::target("avx2"), gnu::always_inline]] static __m256i expand(std::uint8_t const* bits) {
    if constexpr (Width == 8) {
      return load(bits);
    } else if constexpr (Width == 4) {
      __m256i const pairs = _mm256_cvtepu8_epi16(load_half(bits));
      return _mm256_and_si256(_mm256_or_si256(pairs, _mm256_slli_epi16(pairs, 4)), _mm256_set1_epi8(15));
    } else if constexpr (Width == 2) {
      __m256i fours = _mm256_cvtepu8_epi32(load_quarter(bits));
      fours = _mm256_or_si256(fours, _mm256_slli_epi32(fours, 12));
      return _mm256_and_si256(_mm256_or_si256(fours, _mm256_slli_epi32(fours, 6)), _mm256_set1_epi8(3));
    } else {
      static_assert(Width == 1);
      int mask = 0;
      std::memcpy(&mask, bits, 4);
      __m256i const which_byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
      __m256i const which_bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
      __m256i const eights = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(mask), which_byte), which_bit);
      return _mm256_and_si256(_mm256_cmpeq_epi8(eights, which_bit), _mm256_set1_epi8(1));
    }
  }

  /// Undoes expand; the numbers are below 2^Width.
  template <int Width>
  [[gnu::target("avx2"), gnu::always_inline]] static void compact(__m256i numbers, std::uint8_t* bits) {
    if constexpr (Width == 8) {
      store(bits, numbers);
    } else if constexpr (Width == 4) {
      store_half(bits, low_bytes(_mm256_maddubs_epi16(numbers, _mm256_set1_epi16(0x1001))));
    } else if constexpr (Width == 2) {
      __m256i const pairs = _mm256_maddubs_epi16(numbers, _mm256_set1_epi16(0x0401));
      __m256i const fours = _mm256_madd_epi16(pairs, _mm256_set1_epi32(0x00100001));
      __m128i const eights = _mm_packus_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(bits), _mm_packus_epi16(eights, eights));
    } else {
      static_assert(Width == 1);
      int const mask = _mm256_movemask_epi8(_mm256_slli_epi16(numbers, 7));
      std::memcpy(bits, &mask, 4);
    }
  }

  /// The low bytes of sixteen numbers of sixteen bits below 256.
  [[gnu::target("avx2"), gnu::always_inline]] static __m128i low_bytes(__m256i numbers) {
    return _mm_packus_epi16(_mm256_castsi256_si128(numbers), _mm256_extracti128_si256(numbers, 1));
  }

  /// The table's byte for each index below 16.
  [[gnu::target("avx2"), gnu::always_inline]] static __m256i look_up(std::uint8_t const* table, __m256i indices) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_half(table)), indices);
  }
  [[gnu::target("avx2"), gnu::always_inline]] static __m128i look_up_half(std::uint8_t const* table, __m128i indices) {
    return _mm_shuffle_epi8(load_half(table), indices);
  }

  /// Puts the 64-bit parts of a vector where unpacklo and unpackhi find them, and the result of a pack of two vectors
  /// back in order.
  [[gnu::target("avx2"), gnu::always_inline]] static __m256i swap_middle(__m256i vector) {
    return _mm256_permute4x64_epi64(vector, 0xd8);
  }

  /// The low sixteen bits of sixteen numbers of 32 bits, which are below 65536.
  [[gnu::target("avx2"), gnu::always_inline]] static __m256i low_halves(__m256i first, __m256i second) {
    return swap_middle(_mm256_packus_epi32(first, second));
  }
};

/// The planes of one row of a block's residuals of Bits bits (see entropy/bit_planes.hpp).
template <int Bits, int WeightsPerLane>
struct avx2_row {
  static constexpr bit_planes layout{Bits, WeightsPerLane};
  static constexpr int row_weights = 32 * WeightsPerLane;
  static constexpr int most_planes = 4;

  std::uint8_t* bits[most_planes];  ///< this row's numbers in each plane, one after the other
  alignas(32) std::uint8_t buffer[most_planes][64];

  /// Finds the numbers of a row. Numbers whose units are shared with other rows go to the buffer.
  template <int Plane = 0>
  [[gnu::target("avx2"), gnu::always_inline]] void open(std::uint8_t* planes, int coded, int row) {
    if constexpr (Plane < layout.count()) {
      constexpr bit_plane plane = layout.plane(Plane);
      std::uint8_t* const start = planes + layout.offset(Plane, coded);
      bits[Plane] = plane.is_linear() ? start + row * (row_weights * plane.width / 8) : buffer[Plane];
      open<Plane + 1>(planes, coded, row);
    }
  }

  /// Fills the buffer from the units.
  template <int Plane = 0>
  [[gnu::target("avx2"), gnu::always_inline]] void gather(std::uint8_t const* planes, int coded, int row) {
    if constexpr (Plane < layout.count()) {
      constexpr bit_plane plane = layout.plane(Plane);
      if constexpr (!plane.is_linear()) {
        constexpr int lane_bits = WeightsPerLane * plane.width;
        std::uint8_t const* units = planes + layout.offset(Plane, coded) + row / plane.rows_per_unit() * 128;
        __m128i const shift = _mm_cvtsi32_si128(row % plane.rows_per_unit() * lane_bits);
        __m256i const mask = _mm256_set1_epi32((1 << lane_bits) - 1);
        __m256i lanes[4];
        for (int i = 0; i < 4; ++i) {
          lanes[i] = _mm256_and_si256(_mm256_srl_epi32(avx2_bytes::load(units + 32 * i), shift), mask);
        }
        __m256i const low = avx2_bytes::low_halves(lanes[0], lanes[1]);
        __m256i const high = avx2_bytes::low_halves(lanes[2], lanes[3]);
        if constexpr (lane_bits == 16) {
          avx2_bytes::store(buffer[Plane], low);
          avx2_bytes::store(buffer[Plane] + 32, high);
        } else {
          avx2_bytes::compact<lane_bits>(avx2_bytes::swap_middle(_mm256_packus_epi16(low, high)), buffer[Plane]);
        }
      }
      gather<Plane + 1>(planes, coded, row);
    }
  }

  /// Writes the buffer back to the units. The rows of a block must come in order.
  template <int Plane = 0>
  [[gnu::target("avx2"), gnu::always_inline]] void scatter(std::uint8_t* planes, int coded, int row) {
    if constexpr (Plane < layout.count()) {
      constexpr bit_plane plane = layout.plane(Plane);
      if constexpr (!plane.is_linear()) {
        constexpr int lane_bits = WeightsPerLane * plane.width;
        static_assert(lane_bits == 8 || lane_bits == 16);
        std::uint8_t* units = planes + layout.offset(Plane, coded) + row / plane.rows_per_unit() * 128;
        int const row_in_unit = row % plane.rows_per_unit();
        __m128i const shift = _mm_cvtsi32_si128(row_in_unit * lane_bits);
        for (int i = 0; i < 4; ++i) {
          std::uint8_t const* const mine = buffer[Plane] + i * lane_bits;
          __m256i lanes = lane_bits == 16 ? _mm256_cvtepu16_epi32(avx2_bytes::load_half(mine))
                                          : _mm256_cvtepu8_epi32(avx2_bytes::load_quarter(mine));
          lanes = _mm256_sll_epi32(lanes, shift);
          if (row_in_unit != 0) {
            lanes = _mm256_or_si256(lanes, avx2_bytes::load(units + 32 * i));
          }
          avx2_bytes::store(units + 32 * i, lanes);
        }
      }
      scatter<Plane + 1>(planes, coded, row);
    }
  }

  /// The bits that the planes from First to Last hold of 32 weights of the row, at most eight bits each.
  template <int First, int Last = layout.count() - 1>
  [[gnu::target("avx2"), gnu::always_inline]] __m256i load(int weight) const {
    constexpr int width = layout.plane(Last).width;
    __m256i const mine = avx2_bytes::shift_left<layout.shift(Last) - layout.shift(First)>(
        avx2_bytes::expand<width>(bits[Last] + weight * width / 8));
    if constexpr (Last > First) {
      return _mm256_or_si256(mine, load<First, Last - 1>(weight));
    } else {
      return mine;
    }
  }

  template <int First, int Last = layout.count() - 1>
  [[gnu::target("avx2"), gnu::always_inline]] void store(int weight, __m256i numbers) {
    constexpr int width = layout.plane(Last).width;
    constexpr int shift = layout.shift(Last) - layout.shift(First);
    __m256i const mask = _mm256_set1_epi8(static_cast<char>((1 << width) - 1));
    avx2_bytes::compact<width>(_mm256_and_si256(avx2_bytes::shift_right<shift>(numbers), mask),
                               bits[Last] + weight * width / 8);
    if constexpr (Last > First) {
      store<First, Last - 1>(weight, numbers);
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera

#endif
