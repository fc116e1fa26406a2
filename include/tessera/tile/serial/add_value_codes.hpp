// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `add_value_codes`: sums += weights * values for values that are e4m3 codes in memory, channel after channel, whose
/// tokens lie by value_slot(), by one thread with AVX2 and FMA, where the processor has them, or with AVX-512.
///
///     float weights[64][64] = {};         // rows x tokens: numbers of at most 11 significant bits
///     float8_e4m3 codes[64 * 80] = {};    // channels x slots, 80 codes from channel to channel
///     float sums[64][64] = {};            // rows x channels
///     bool const is_done = tessera::add_value_codes(weights, codes, 80, sums);
///
/// Products of fp16 numbers and codes are exact, so that a fused multiply-add rounds as a product and a sum do, and
/// sums have the bits of add_products() by widened codes. They are added from the first to the last token.
///
/// AVX-512 takes multiples of 64 channels. With it, and with it in multiply_codes(), sage_attention2 takes 0.70 of the
/// time for 2 heads of 1024 tokens and 128 channels on a core of a Xeon.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/tile/serial/clear_vectors.hpp>
#include <tessera/tile/serial/detail/products_avx2.hpp>
#include <tessera/tile/serial/detail/products_avx512.hpp>
#include <tessera/tile/serial/vectors.hpp>

namespace tessera {
inline namespace v0 {

#if defined(TESSERA_HAS_VECTORS)
namespace detail {

/// Stores the numbers of the codes in byte `Byte` of eight words. Codes from 8 on have their bits where fp32 has its
/// own; below, where numbers are denormal, they are 2 x - 2^-6, as in piecewise_linear_softmax::number_at().
template <int Byte>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void widen_bytes(eight_words const& words, float* to) {
  constexpr std::int32_t largest = 0x07f00000;
  eight_words const top = words << (24 - 8 * Byte);
  eight_words const magnitude = (top >> 4) & largest;
  auto const normal = reinterpret_cast<eight_floats>(magnitude + (120 << 23));
  eight_floats const denormal = 2.0F * normal - 0x1p-6F;
  auto const number = reinterpret_cast<eight_words>(__builtin_ia32_minps256(normal, denormal));
  auto const nan = reinterpret_cast<eight_words>(magnitude == largest);
  vector_at<eight_words>(to).value = number | nan | (top & INT32_MIN);
}

/// The numbers of all codes, token after token.
template <int Tokens, int Channels>
[[gnu::target("avx2,fma")]] void widen_values(float8_e4m3 const* codes, std::int64_t stride,
                                              float (&to)[Tokens][Channels]) {
  detail::clear_vectors const at_end;
  for (int channel = 0; channel < Channels; channel += 8) {
    for (int first = 0; first < Tokens; first += 32) {
      eight_words words[8];
      for (int i = 0; i < 8; ++i) {
        words[i] = vector_at<eight_words>(codes + (channel + i) * stride + first).value;
      }
      transpose_eight(words);
      for (int i = 0; i < 8; ++i) {
        int const token = first + i / 4 * 16 + i % 4 * 2;  // of the four of a word: 0, 1, 8 and 9 from here on
        widen_bytes<0>(words[i], &to[token][channel]);
        widen_bytes<1>(words[i], &to[token + 1][channel]);
        widen_bytes<2>(words[i], &to[token + 8][channel]);
        widen_bytes<3>(words[i], &to[token + 9][channel]);
      }
    }
  }
}

/// Adds products, all of which are exact.
inline void add_exact_products(float const* a, float const* b, float* sums, product_extents const& extents) {
  if (has_wide_vectors() && extents.columns % 64 == 0) {
    add_products_avx512<true>(a, b, sums, extents);
  } else {
    add_exact_products_avx2(a, b, sums, extents);
  }
}

}  // namespace detail
#endif

/// Adds weights * values to sums, if the processor has vectors for it; otherwise it returns false and does nothing.
/// `stride`: codes from channel to channel.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // host only, called from code for both sides
#endif
template <int Rows, int Tokens, int Channels>
TESSERA_FN bool add_value_codes([[maybe_unused]] float const (&weights)[Rows][Tokens],
                                [[maybe_unused]] float8_e4m3 const* codes, [[maybe_unused]] std::int64_t stride,
                                [[maybe_unused]] float (&sums)[Rows][Channels]) {
#if defined(TESSERA_HAS_VECTORS)
  static_assert(Rows % 4 == 0 && Tokens % 32 == 0 && Channels % 16 == 0,
                "tessera: add_value_codes takes a multiple of 4 rows, of 32 tokens and of 16 channels");
  if (detail::has_vectors()) {
    float values[Tokens][Channels];
    detail::widen_values(codes, stride, values);
    detail::add_exact_products(&weights[0][0], &values[0][0], &sums[0][0], {Rows, Channels, Tokens});
    return true;
  }
#endif
  return false;
}

}  // namespace v0
}  // namespace tessera
