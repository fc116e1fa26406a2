// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Bit planes with AVX-512: converts 64 numbers at a time between the bits that a stream stores and one byte each.
///
/// For the block steps (program/weights/block_avx512.hpp). Empty on other architectures.
#pragma once

#include <cstdint>
#include <cstring>

#include <tessera/entropy/bit_planes.hpp>

#if defined(__x86_64__) && defined(__GNUC__)

// GCC's own definitions of some AVX-512 functions pass a variable that they leave undefined on purpose, and GCC 12
// warns of them.
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Operations on 64 numbers of one byte each, and on the bits in which they are stored.
struct avx512_bytes {
  template <int Count>
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static __m512i shift_left(__m512i bytes) {
    constexpr unsigned left = (0xffu << Count) & 0xffu;
    return Count == 0 ? bytes
                      : _mm512_and_si512(_mm512_slli_epi16(bytes, Count), _mm512_set1_epi8(static_cast<char>(left)));
  }

  template <int Count>
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static __m512i shift_right(__m512i bytes) {
    __m512i const kept = _mm512_set1_epi8(static_cast<char>(0xff >> Count));
    return Count == 0 ? bytes : _mm512_and_si512(_mm512_srli_epi16(bytes, Count), kept);
  }

  /// Expands 64 numbers of Width bits, one after the other, to bytes.
  template <int Width>
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static __m512i expand(std::uint8_t const* bits) {
    if constexpr (Width == 8) {
      return _mm512_loadu_si512(bits);
    } else if constexpr (Width == 4) {
      __m512i const pairs = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<__m256i const*>(bits)));
      return _mm512_and_si512(_mm512_or_si512(pairs, _mm512_slli_epi16(pairs, 4)), _mm512_set1_epi8(15));
    } else if constexpr (Width == 2) {
      __m512i fours = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<__m128i const*>(bits)));
      fours = _mm512_or_si512(fours, _mm512_slli_epi32(fours, 12));
      return _mm512_and_si512(_mm512_or_si512(fours, _mm512_slli_epi32(fours, 6)), _mm512_set1_epi8(3));
    } else {
      static_assert(Width == 1);
      std::uint64_t mask = 0;
      std::memcpy(&mask, bits, 8);
      return _mm512_maskz_set1_epi8(mask, 1);
    }
  }

  /// Undoes expand; the numbers are below 2^Width.
  template <int Width>
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static void compact(__m512i numbers, std::uint8_t* bits) {
    if constexpr (Width == 8) {
      _mm512_storeu_si512(bits, numbers);
    } else if constexpr (Width == 4) {
      __m512i const pairs = _mm512_maddubs_epi16(numbers, _mm512_set1_epi16(0x1001));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(bits), _mm512_cvtepi16_epi8(pairs));
    } else if constexpr (Width == 2) {
      __m512i const pairs = _mm512_maddubs_epi16(numbers, _mm512_set1_epi16(0x0401));
      __m512i const fours = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x00100001));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(bits), _mm512_cvtepi32_epi8(fours));
    } else {
      static_assert(Width == 1);
      std::uint64_t const mask = _mm512_test_epi8_mask(numbers, numbers);
      std::memcpy(bits, &mask, 8);
    }
  }

  /// The table's byte for each index below 16.
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static __m512i look_up(std::uint8_t const* table,
                                                                                  __m512i indices) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<__m128i const*>(table))),
                               indices);
  }

  /// Puts the 64-bit parts of a vector where unpacklo and unpackhi find them: 0 4 1 5 2 6 3 7.
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static __m512i to_unpack(__m512i vector) {
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), vector);
  }

  /// Puts the 64-bit parts that a pack of two vectors made back in order.
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static __m512i from_pack(__m512i vector) {
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), vector);
  }
};

/// The planes of one row of a block's residuals of Bits bits (see entropy/bit_planes.hpp).
template <int Bits, int WeightsPerLane>
struct avx512_row {
  static constexpr bit_planes layout{Bits, WeightsPerLane};
  static constexpr int row_weights = 32 * WeightsPerLane;
  static constexpr int most_planes = 4;

  std::uint8_t* bits[most_planes];  ///< this row's numbers in each plane, one after the other
  alignas(64) std::uint8_t buffer[most_planes][64];

  /// Finds the numbers of a row, and gathers numbers whose units are shared with other rows in buffers.
  template <int Plane = 0>
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] void open(std::uint8_t* planes, int coded, int row) {
    if constexpr (Plane < layout.count()) {
      constexpr bit_plane plane = layout.plane(Plane);
      std::uint8_t* const start = planes + layout.offset(Plane, coded);
      bits[Plane] = plane.is_linear() ? start + row * (row_weights * plane.width / 8) : buffer[Plane];
      open<Plane + 1>(planes, coded, row);
    }
  }

  template <int Plane = 0>
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] void gather(std::uint8_t const* planes, int coded, int row) {
    if constexpr (Plane < layout.count()) {
      constexpr bit_plane plane = layout.plane(Plane);
      if constexpr (!plane.is_linear()) {
        constexpr int lane_bits = WeightsPerLane * plane.width;
        std::uint8_t const* units = planes + layout.offset(Plane, coded) + row / plane.rows_per_unit() * 128;
        __m512i const shift = _mm512_set1_epi32(row % plane.rows_per_unit() * lane_bits);
        __m512i const low = _mm512_srlv_epi32(_mm512_loadu_si512(units), shift);
        __m512i const high = _mm512_srlv_epi32(_mm512_loadu_si512(units + 64), shift);
        if constexpr (lane_bits == 16) {
          store_256(buffer[Plane], _mm512_cvtepi32_epi16(low));
          store_256(buffer[Plane] + 32, _mm512_cvtepi32_epi16(high));
        } else {
          __m256i both = _mm256_set_m128i(_mm512_cvtepi32_epi8(high), _mm512_cvtepi32_epi8(low));
          if constexpr (lane_bits == 4) {
            both = _mm256_and_si256(both, _mm256_set1_epi8(15));
            both = _mm256_maddubs_epi16(both, _mm256_set1_epi16(0x1001));
            both = _mm256_castsi128_si256(_mm256_cvtepi16_epi8(both));
          }
          store_256(buffer[Plane], both);
        }
      }
      gather<Plane + 1>(planes, coded, row);
    }
  }

  /// Writes the buffers back to the units. The rows of a block must come in order.
  template <int Plane = 0>
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] void scatter(std::uint8_t* planes, int coded, int row) {
    if constexpr (Plane < layout.count()) {
      constexpr bit_plane plane = layout.plane(Plane);
      if constexpr (!plane.is_linear()) {
        constexpr int lane_bits = WeightsPerLane * plane.width;
        static_assert(lane_bits == 8 || lane_bits == 16);
        std::uint8_t* units = planes + layout.offset(Plane, coded) + row / plane.rows_per_unit() * 128;
        int const row_in_unit = row % plane.rows_per_unit();
        for (int half = 0; half < 2; ++half) {
          __m512i lanes;
          if constexpr (lane_bits == 16) {
            lanes =
                _mm512_cvtepu16_epi32(_mm256_load_si256(reinterpret_cast<__m256i const*>(buffer[Plane] + 32 * half)));
          } else {
            lanes = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<__m128i const*>(buffer[Plane] + 16 * half)));
          }
          lanes = _mm512_sllv_epi32(lanes, _mm512_set1_epi32(row_in_unit * lane_bits));
          if (row_in_unit != 0) {
            lanes = _mm512_or_si512(lanes, _mm512_loadu_si512(units + 64 * half));
          }
          _mm512_storeu_si512(units + 64 * half, lanes);
        }
      }
      scatter<Plane + 1>(planes, coded, row);
    }
  }

  /// The bits that the planes from First to Last hold of 64 weights of the row, at most eight bits each.
  template <int First, int Last = layout.count() - 1>
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] __m512i load(int weight) const {
    constexpr int width = layout.plane(Last).width;
    __m512i const mine = avx512_bytes::shift_left<layout.shift(Last) - layout.shift(First)>(
        avx512_bytes::expand<width>(bits[Last] + weight * width / 8));
    if constexpr (Last > First) {
      return _mm512_or_si512(mine, load<First, Last - 1>(weight));
    } else {
      return mine;
    }
  }

  template <int First, int Last = layout.count() - 1>
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] void store(int weight, __m512i numbers) {
    constexpr int width = layout.plane(Last).width;
    constexpr int shift = layout.shift(Last) - layout.shift(First);
    __m512i const mask = _mm512_set1_epi8(static_cast<char>((1 << width) - 1));
    avx512_bytes::compact<width>(_mm512_and_si512(avx512_bytes::shift_right<shift>(numbers), mask),
                                 bits[Last] + weight * width / 8);
    if constexpr (Last > First) {
      store<First, Last - 1>(weight, numbers);
    }
  }

 private:
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static void store_256(std::uint8_t* bytes, __m256i vector) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(bytes), vector);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera

#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#endif
