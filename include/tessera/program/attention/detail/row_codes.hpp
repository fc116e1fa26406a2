// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Codes of rows of floats that one thread has in memory: what the host does instead of program/attention's lanes,
/// which take a number each. Codes are the same.
///
///     std::uint32_t const largest = detail::largest_magnitude(row, 128);   // as bits
///     detail::encode_row<symmetric_quantizer<8>>(row, 128, reciprocal, bytes);
///     detail::encode_slots<float8_quantizer<float8_e4m3>>(rows, 256, reciprocals, 128, codes, 128);   // of 32 rows
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/quantize/sampled_range.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/reduce/absolute_maximum_or_nan.hpp>
#include <tessera/tile/codes/value_slot.hpp>
#include <tessera/tile/serial/clear_vectors.hpp>
#include <tessera/tile/serial/vectors.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether codes of a quantizer are those of a symmetric_quantizer<8>.
template <class Q>
inline constexpr bool has_signed_bytes = false;
template <auto Grouping>
inline constexpr bool has_signed_bytes<symmetric_quantizer<8, Grouping>> = true;
template <class Q, class Mean>
inline constexpr bool has_signed_bytes<smoothed<Q, Mean>> = has_signed_bytes<Q>;

/// Whether codes of a quantizer are those of a float8_quantizer<float8_e4m3>.
template <class Q>
inline constexpr bool has_e4m3 = false;
template <auto Grouping>
inline constexpr bool has_e4m3<scaled_float_quantizer<float8_e4m3, Grouping>> = true;
template <class Q>
inline constexpr bool has_e4m3<sampled_range<Q>> = has_e4m3<Q>;
template <class Q, class Mean>
inline constexpr bool has_e4m3<smoothed<Q, Mean>> = has_e4m3<Q>;

#if defined(TESSERA_HAS_VECTORS)

/// largest_magnitude() of a multiple of 8 values.
[[gnu::target("avx2")]] inline std::uint32_t largest_of_eights(float const* values, int count) {
  detail::clear_vectors const at_end;
  eight_words largest{};
  for (int i = 0; i < count; i += 8) {
    eight_words const magnitude = vector_at<eight_words>(values + i).value & INT32_MAX;
    auto const is_larger = reinterpret_cast<eight_words>(magnitude > largest);
    largest = (is_larger & magnitude) | (~is_larger & largest);
  }
  std::int32_t most = 0;
  for (int i = 0; i < 8; ++i) {
    most = max(most, largest[i]);
  }
  return static_cast<std::uint32_t>(most);
}
/// Codes from -127 to 127 of 32 values: see nearest_code(). Packing exchanges the middle words of vectors.
[[gnu::target("avx2")]] inline void encode_bytes(float const* values, float reciprocal, std::int8_t* to) {
  detail::clear_vectors const at_end;
  eight_words codes[4];
  for (int i = 0; i < 4; ++i) {
    eight_floats const steps = vector_at<eight_floats>(values + 8 * i).value * reciprocal;
    auto const is_number = reinterpret_cast<eight_words>(steps == steps);
    eight_floats const limited = __builtin_ia32_maxps256(steps, eight_floats{} - 127.0F);
    codes[i] = is_number & reinterpret_cast<eight_words>(
                               __builtin_ia32_cvtps2dq256(__builtin_ia32_minps256(limited, eight_floats{} + 127.0F)));
  }
  sixteen_halves const low = __builtin_ia32_packssdw256(codes[0], codes[1]);
  sixteen_halves const high = __builtin_ia32_packssdw256(codes[2], codes[3]);
  auto const packed = reinterpret_cast<eight_words>(__builtin_ia32_packsswb256(low, high));
  vector_at<eight_words>(to).value = __builtin_shufflevector(packed, packed, 0, 4, 1, 5, 2, 6, 3, 7);
}

/// Codes of eight values, in words: see scaled_float_quantizer::encode_scaled(), and encode_float() for how it rounds.
/// Below 2^-6, where codes are denormal, adding 2^14 rounds to multiples of 2^-9.
[[gnu::target("avx2"), gnu::always_inline]] inline void find_e4m3(float const* values, float const* reciprocals,
                                                                  eight_words& codes) {
  constexpr std::int32_t rebias = (127 - 7) << 3;
  constexpr std::int32_t smallest_normal = (127 - 6) << 23;
  constexpr float magic = 16384.0F;
  eight_floats const reciprocal = vector_at<eight_floats>(reciprocals).value;
  eight_floats const scaled = vector_at<eight_floats>(values).value * reciprocal;
  auto const bits = reinterpret_cast<eight_words>(scaled);
  auto const is_nan = reinterpret_cast<eight_words>(scaled != scaled);
  eight_words const magnitude = bits & INT32_MAX;
  eight_floats const limited =
      __builtin_ia32_minps256(reinterpret_cast<eight_floats>(magnitude), eight_floats{} + 448.0F);
  auto const pattern = reinterpret_cast<eight_words>(limited);
  eight_words const normal = ((pattern + 0x7ffff + ((pattern >> 20) & 1)) >> 20) - rebias;
  eight_words const denormal = reinterpret_cast<eight_words>(limited + magic) & 0xf;
  auto const is_denormal = reinterpret_cast<eight_words>(pattern < smallest_normal);
  eight_words const code = (is_denormal & denormal) | (~is_denormal & normal) | ((bits >> 24) & 0x80);
  eight_words const known = (is_nan & 0x7f) | (~is_nan & code);
  codes = known & reinterpret_cast<eight_words>(reciprocal != 0.0F);
}
/// Codes of 32 tokens and eight channels, in slots.
[[gnu::target("avx2")]] inline void encode_eight_channels(float const* rows, std::int64_t pitch,
                                                          float const* reciprocals, std::uint8_t* to,
                                                          std::int64_t stride) {
  detail::clear_vectors const at_end;
  eight_words words[8];
  for (int i = 0; i < 8; ++i) {
    float const* const first = rows + (i / 4 * 16 + i % 4 * 2) * pitch;  // of a word's tokens: 0, 1, 8 and 9 from here
    eight_words codes[4];
    find_e4m3(first, reciprocals, codes[0]);
    find_e4m3(first + pitch, reciprocals, codes[1]);
    find_e4m3(first + 8 * pitch, reciprocals, codes[2]);
    find_e4m3(first + 9 * pitch, reciprocals, codes[3]);
    words[i] = codes[0] | codes[1] << 8 | codes[2] << 16 | codes[3] << 24;
  }
  transpose_eight(words);
  for (int i = 0; i < 8; ++i) {
    vector_at<eight_words>(to + i * stride).value = words[i];
  }
}

#endif

/// The bits of the largest magnitude: see absolute_maximum_or_nan_reducer.
inline std::uint32_t largest_magnitude(float const* values, int count) {
  absolute_maximum_or_nan_reducer const reducer;
  auto state = reducer.identity();
  int first = 0;
#if defined(TESSERA_HAS_VECTORS)
  if (has_vectors()) {
    first = count / 8 * 8;
    state = largest_of_eights(values, first);
  }
#endif
  for (int i = first; i < count; ++i) {
    reducer.push(state, values[i]);
  }
  return state;
}

/// Codes of a row's values by the reciprocal of their scale.
template <class Q>
void encode_row(float const* values, int count, float reciprocal, typename Q::code_type* to) {
  int first = 0;
#if defined(TESSERA_HAS_VECTORS)
  if constexpr (has_signed_bytes<Q>) {
    for (; has_vectors() && first + 32 <= count; first += 32) {
      encode_bytes(values + first, reciprocal, to + first);
    }
  }
#endif
  for (int i = first; i < count; ++i) {
    to[i] = Q::encode_scaled(values[i], reciprocal);
  }
}

/// Codes of 32 rows of values, `pitch` numbers apart, with a scale for each channel: channel after channel, `stride`
/// codes apart, by value_slot().
template <class Q>
void encode_slots(float const* rows, std::int64_t pitch, float const* reciprocals, int channels,
                  typename Q::code_type* to, std::int64_t stride) {
  int first = 0;
#if defined(TESSERA_HAS_VECTORS)
  if constexpr (has_e4m3<Q>) {
    for (; has_vectors() && first + 8 <= channels; first += 8) {
      encode_eight_channels(rows + first, pitch, reciprocals + first, &to[first * stride].bits, stride);
    }
  }
#endif
  for (int channel = first; channel < channels; ++channel) {
    for (int token = 0; token < 32; ++token) {
      to[channel * stride + value_slot(token)] = Q::encode_scaled(rows[token * pitch + channel], reciprocals[channel]);
    }
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
