// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The block steps with AVX-512, where a group's 32 lanes are two vectors. They write the same bytes as the portable
/// steps, for every input.
///
///     if (tessera::best_simd_level() == tessera::simd_level::avx512) {
///       using steps = tessera::weight_block_steps_avx512<tessera::bfloat16, tessera::keep_mantissa<7>>;
///       bool sound = steps::unpack(tessera::serial_group<32>{}, coded, table, states, words, word_count, scratch);
///     }
///
/// Functions carry their instruction set as an attribute, so that no compiler flag is needed. Only call them on a
/// processor that has it (core/cpu_features.hpp). On other architectures these are the portable steps.
#pragma once

#include <cstdint>
#include <cstring>

#include <tessera/program/weights/block.hpp>
#include <tessera/program/weights/detail/block_host.hpp>
#include <tessera/program/weights/detail/coder_avx512.hpp>
#include <tessera/program/weights/detail/planes_avx512.hpp>
#include <tessera/tile/serial/clear_vectors.hpp>
#include <tessera/tile/serial/group.hpp>

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
/// The block steps with AVX-512; see weight_block_steps.
template <class T, class Mantissa>
struct weight_block_steps_avx512 : weight_block_steps<T, Mantissa> {
  using portable = weight_block_steps<T, Mantissa>;
  using group_type = serial_group<32>;
  using portable::lanes;
  using portable::pairs_per_lane;
  using portable::row_weights;
  using portable::weights_per_lane;

  static void count(group_type const& group, weight_block<T> const& block, std::uint64_t* counts) {
    weight_block_counter<T, Mantissa>::count(group, block, counts);
  }

  static int split(group_type const& group, weight_block<T> const& block, exponent_window window,
                   pair_coder::encode_table const* table, std::uint8_t* planes, weight_block_scratch& scratch) {
    if constexpr (bits::is_lossless) {
      if (bits::splits_fast(window)) {
        return split_fast(block, window, table, planes, scratch);
      }
    }
    return portable::split(group, block, window, table, planes, scratch);
  }

  [[gnu::target("avx512bw,avx512vl,bmi2,popcnt")]] static packed_block<group_type> pack(
      group_type const&, int coded, pair_coder::encode_table const& table, weight_block_scratch& scratch) {
    detail::clear_vectors const at_end;
    __m512i const start = _mm512_set1_epi32(pair_coder::start());
    detail::avx512_lanes state{start, start};
    int words = 0;
    for (int row = coded / row_weights - 1; row >= 0; --row) {
      std::uint8_t const* const codes = scratch.codes + row * (row_weights / 2);
      for (int part = parts - 1; part >= 0; --part) {
        detail::avx512_lanes symbols = load_symbols(codes, part);
        for (int pair = 0; pair < pairs_per_part; ++pair) {
          words = state.push(symbols, words, table, scratch);
        }
      }
    }
    packed_block<group_type> packed;
    state.store(packed.state.values);
    packed.words = words;
    return packed;
  }

  [[gnu::target("avx512bw,avx512vl,bmi2,popcnt")]] static bool unpack(group_type const& group, int coded,
                                                                      pair_coder::decode_table const& table,
                                                                      std::uint8_t const* states,
                                                                      std::uint8_t const* words, int word_count,
                                                                      weight_block_scratch& scratch) {
    detail::clear_vectors const at_end;
    detail::avx512_lanes state = detail::avx512_lanes::load(states);
    if (!state.all_are_states()) {
      return portable::unpack(group, coded, table, states, words, word_count, scratch);
    }
    detail::weight_words source(words, word_count);
    for (int row = 0; row < coded / row_weights; ++row) {
      source.prepare_row();
      source.at = unpack_row(state, source.at, table, scratch.codes + row * (row_weights / 2));
    }
    return state.all_equal(pair_coder::start()) && source.used() == word_count;
  }

  static void join(group_type const& group, exponent_window window, std::uint8_t const* planes,
                   std::uint8_t const* normalizers, int log2_normalizer_block, int count, int coded,
                   weight_block_scratch const& scratch, T* weights) {
    if constexpr (bits::joins_fast) {
      if (bits::is_lossless || normalizers == nullptr) {
        join_fast(window, planes, count, coded, scratch, weights);
        return;
      }
    }
    portable::join(group, window, planes, normalizers, log2_normalizer_block, count, coded, scratch, weights);
  }

 private:
  using bits = detail::weight_bits<T, Mantissa>;
  using bytes = detail::avx512_bytes;
  using row_type = detail::avx512_row<1 + Mantissa::kept_bits, weights_per_lane>;

  /// Symbols of a lane that are coded together: four, or two where a row has no more.
  static constexpr int pairs_per_part = pairs_per_lane < 4 ? pairs_per_lane : 4;
  static constexpr int parts = pairs_per_lane / pairs_per_part;

  [[gnu::target("avx512bw,avx512vl,popcnt"), gnu::always_inline]] static std::uint8_t const* unpack_row(
      detail::avx512_lanes& state, std::uint8_t const* at, pair_coder::decode_table const& table, std::uint8_t* codes) {
    detail::avx512_lanes symbols[parts];
    for (auto& part : symbols) {
      part = {_mm512_setzero_si512(), _mm512_setzero_si512()};
      for (int pair = 0; pair < pairs_per_part; ++pair) {
        state.pop(part, at, table);
      }
    }
    if constexpr (pairs_per_lane == 4) {
      symbols[0].store(codes);
    } else if constexpr (pairs_per_lane == 2) {
      __m256i const low = _mm512_cvtepi32_epi16(_mm512_srli_epi32(symbols[0].low, 16));
      __m256i const high = _mm512_cvtepi32_epi16(_mm512_srli_epi32(symbols[0].high, 16));
      _mm512_storeu_si512(codes, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
    } else {
      store_interleaved(symbols[0].low, symbols[1].low, codes);
      store_interleaved(symbols[0].high, symbols[1].high, codes + 128);
    }
    return at;
  }

  /// Stores first[0] second[0] first[1] second[1] ...
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static void store_interleaved(__m512i first, __m512i second,
                                                                                         std::uint8_t* bytes_out) {
    __m512i const low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    __m512i const high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    _mm512_storeu_si512(bytes_out, _mm512_permutex2var_epi32(first, low, second));
    _mm512_storeu_si512(bytes_out + 64, _mm512_permutex2var_epi32(first, high, second));
  }

  /// Loads the symbols of one part of a row; in each lane the last symbol is on top.
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static detail::avx512_lanes load_symbols(
      std::uint8_t const* codes, int part) {
    if constexpr (pairs_per_lane == 4) {
      return detail::avx512_lanes::load(codes);
    } else if constexpr (pairs_per_lane == 2) {
      __m512i const both = _mm512_loadu_si512(codes);
      return {_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(both)), 16),
              _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 1)), 16)};
    } else {
      __m512i const indices = part == 0 ? detail::avx512_coder::even_indices() : detail::avx512_coder::odd_indices();
      return {_mm512_permutex2var_epi32(_mm512_loadu_si512(codes), indices, _mm512_loadu_si512(codes + 64)),
              _mm512_permutex2var_epi32(_mm512_loadu_si512(codes + 128), indices, _mm512_loadu_si512(codes + 192))};
    }
  }

  [[gnu::target("avx512bw,avx512vl,bmi2,popcnt")]] static void join_fast(exponent_window window,
                                                                         std::uint8_t const* planes, int count,
                                                                         int coded, weight_block_scratch const& scratch,
                                                                         T* weights) {
    detail::clear_vectors const at_end;
    typename bits::exponent_bytes const exponents = bits::exponents(window);
    row_type row_planes;
    for (int row = 0; row < coded / row_weights; ++row) {
      row_planes.open(const_cast<std::uint8_t*>(planes), coded, row);  // only read
      row_planes.gather(planes, coded, row);
      for (int in_row = 0; in_row < row_weights; in_row += 64) {
        int const first = row * row_weights + in_row;
        __m512i const codes = bytes::template expand<4>(scratch.codes + first / 2);
        if (first + 64 <= count) {
          join_64(exponents, codes, row_planes, in_row, weights + first);
        } else if (first < count) {
          T last[64];
          join_64(exponents, codes, row_planes, in_row, last);
          std::memcpy(weights + first, last, static_cast<std::size_t>(count - first) * sizeof(T));
        }
      }
    }
  }

  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static void join_64(
      typename bits::exponent_bytes const& exponents, __m512i codes, row_type const& row, int in_row, T* weights) {
    constexpr int kept = Mantissa::kept_bits;
    constexpr int mantissa_bits = scalar_traits<T>::mantissa_bits;
    __m512i const exponent_high = bytes::look_up(exponents.high, codes);
    if constexpr (sizeof(T) == 1) {
      static constexpr auto residuals = bits::residuals();
      __m512i const high = bytes::look_up(residuals.high, row.template load<0>(in_row));
      _mm512_storeu_si512(weights, _mm512_or_si512(high, exponent_high));
    } else if constexpr (bits::high_mantissa_bits == 7) {
      __m512i residual;
      std::uint8_t const* below = nullptr;
      if constexpr (kept > 7) {
        residual = row.template load<1>(in_row);
        below = row.bits[0] + 2 * in_row;
      } else {
        residual = bytes::template shift_left<7 - kept>(row.template load<0>(in_row));
      }
      __m512i const sign = _mm512_set1_epi8(static_cast<char>(0x80));
      __m512i const exponent_low = bytes::look_up(exponents.low, codes);
      __m512i const low = _mm512_or_si512(_mm512_andnot_si512(sign, residual), exponent_low);
      __m512i const high = _mm512_or_si512(_mm512_and_si512(sign, residual), exponent_high);
      store_halves(low, high, below, weights);
    } else {
      static constexpr auto residuals = bits::residuals();
      __m512i low;
      __m512i high;
      if constexpr (bits::is_lossless) {
        low = row.template load<0, 0>(in_row);
        high = row.template load<1>(in_row);
      } else if constexpr (mantissa_bits - kept > 8) {
        low = _mm512_setzero_si512();
        high = bytes::template shift_left<mantissa_bits - kept - 8>(row.template load<0>(in_row));
      } else {
        __m512i const residual = row.template load<0>(in_row);
        low = bytes::template shift_left<mantissa_bits - kept>(residual);
        high = bytes::template shift_right<8 - mantissa_bits + kept>(residual);
      }
      high = _mm512_or_si512(bytes::look_up(residuals.high, high), exponent_high);
      store_halves(low, high, nullptr, weights);
    }
  }

  /// Writes weights from their two highest bytes, and for fp32 the sixteen bits below them (null: zeros).
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static void store_halves(__m512i low, __m512i high,
                                                                                    std::uint8_t const* below,
                                                                                    T* weights) {
    low = bytes::to_unpack(low);
    high = bytes::to_unpack(high);
    __m512i const halves[2] = {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
    for (int i = 0; i < 2; ++i) {
      if constexpr (sizeof(T) == 2) {
        _mm512_storeu_si512(weights + 32 * i, halves[i]);
      } else {
        __m512i const lower =
            below == nullptr ? _mm512_setzero_si512() : bytes::to_unpack(_mm512_loadu_si512(below + 64 * i));
        __m512i const upper = bytes::to_unpack(halves[i]);
        _mm512_storeu_si512(weights + 32 * i, _mm512_unpacklo_epi16(lower, upper));
        _mm512_storeu_si512(weights + 32 * i + 16, _mm512_unpackhi_epi16(lower, upper));
      }
    }
  }

  [[gnu::target("avx512bw,avx512vl,bmi2,popcnt")]] static int split_fast(weight_block<T> const& block,
                                                                         exponent_window window,
                                                                         pair_coder::encode_table const* table,
                                                                         std::uint8_t* planes,
                                                                         weight_block_scratch& scratch) {
    detail::clear_vectors const at_end;
    detail::codable_pairs const codable(table);
    row_type row_planes;
    T padded[row_weights];
    int escapes = 0;
    for (int row = 0; row < block.coded / row_weights; ++row) {
      int const first = row * row_weights;
      T const* const weights = bits::full_row(block, first, row_weights, window, padded);
      row_planes.open(planes, block.coded, row);
      std::uint64_t masks[row_weights / 64];
      std::uint64_t any = 0;
      for (int i = 0; i < row_weights / 64; ++i) {
        __m512i const exponents = split_64(weights + 64 * i, row_planes, 64 * i);
        masks[i] = store_codes(exponents, window, codable, scratch.codes + (first + 64 * i) / 2);
        any |= masks[i];
      }
      row_planes.scatter(planes, block.coded, row);
      if (any != 0) {
        escapes += detail::list_row_escapes<T, Mantissa>(block, masks, row_weights / 64, first, escapes, scratch);
      }
    }
    return escapes;
  }

  /// Writes the residuals of 64 weights, and returns their exponents.
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static __m512i split_64(T const* weights, row_type& row,
                                                                                   int in_row) {
    constexpr int high_bits = bits::high_mantissa_bits;
    __m512i low = _mm512_setzero_si512();
    __m512i high;
    if constexpr (sizeof(T) == 1) {
      high = _mm512_loadu_si512(weights);
    } else {
      load_halves(weights, sizeof(T) == 4 ? row.bits[0] + 2 * in_row : nullptr, low, high);
    }
    __m512i const mantissa_mask = _mm512_set1_epi8(static_cast<char>((1 << high_bits) - 1));
    if constexpr (high_bits == 7) {
      // low: the exponent's last bit and the mantissa; high: the sign and the rest of the exponent
      __m512i const sign = _mm512_set1_epi8(static_cast<char>(0x80));
      __m512i const residual = _mm512_or_si512(_mm512_and_si512(low, mantissa_mask), _mm512_and_si512(high, sign));
      row.template store<(sizeof(T) == 4 ? 1 : 0)>(in_row, residual);
      return _mm512_or_si512(bytes::template shift_left<1>(high), bytes::template shift_right<7>(low));
    } else {
      __m512i const sign = bytes::template shift_left<high_bits>(bytes::template shift_right<7>(high));
      __m512i const residual = _mm512_or_si512(_mm512_and_si512(high, mantissa_mask), sign);
      if constexpr (sizeof(T) == 2) {
        row.template store<0, 0>(in_row, low);
        row.template store<1>(in_row, residual);
      } else {
        row.template store<0>(in_row, residual);
      }
      __m512i const exponent_mask = _mm512_set1_epi8((1 << scalar_traits<T>::exponent_bits) - 1);
      return _mm512_and_si512(bytes::template shift_right<high_bits>(high), exponent_mask);
    }
  }

  /// Undoes store_halves.
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static void load_halves(T const* weights,
                                                                                   std::uint8_t* below, __m512i& low,
                                                                                   __m512i& high) {
    __m512i halves[2];
    for (int i = 0; i < 2; ++i) {
      if constexpr (sizeof(T) == 2) {
        halves[i] = _mm512_loadu_si512(weights + 32 * i);
      } else {
        __m512i const first = _mm512_loadu_si512(weights + 32 * i);
        __m512i const second = _mm512_loadu_si512(weights + 32 * i + 16);
        __m512i const mask = _mm512_set1_epi32(0xffff);
        _mm512_storeu_si512(below + 64 * i, bytes::from_pack(_mm512_packus_epi32(_mm512_and_si512(first, mask),
                                                                                 _mm512_and_si512(second, mask))));
        halves[i] = bytes::from_pack(_mm512_packus_epi32(_mm512_srli_epi32(first, 16), _mm512_srli_epi32(second, 16)));
      }
    }
    __m512i const mask = _mm512_set1_epi16(0xff);
    low = bytes::from_pack(_mm512_packus_epi16(_mm512_and_si512(halves[0], mask), _mm512_and_si512(halves[1], mask)));
    high = bytes::from_pack(_mm512_packus_epi16(_mm512_srli_epi16(halves[0], 8), _mm512_srli_epi16(halves[1], 8)));
  }

  /// Writes the codes of 64 exponents, and returns a mask of the escapes.
  [[gnu::target("avx512bw,avx512vl,bmi2"), gnu::always_inline]] static std::uint64_t store_codes(
      __m512i exponents, exponent_window window, detail::codable_pairs const& codable, std::uint8_t* codes_out) {
    __m512i const offset = _mm512_sub_epi8(exponents, _mm512_set1_epi8(static_cast<char>(window.base)));
    __mmask64 const outside = _mm512_cmpge_epu8_mask(offset, _mm512_set1_epi8(exponent_window::neighbours));
    __mmask64 const extra =
        _mm512_mask_cmpeq_epu8_mask(outside, exponents, _mm512_set1_epi8(static_cast<char>(window.extra)));
    __m512i codes = _mm512_mask_mov_epi8(offset, outside, _mm512_set1_epi8(exponent_window::escape_code));
    codes = _mm512_mask_mov_epi8(codes, extra, _mm512_set1_epi8(exponent_window::extra_code));
    __m256i const symbols = _mm512_cvtepi16_epi8(_mm512_maddubs_epi16(codes, _mm512_set1_epi16(0x1001)));
    // Of the sixteen bits of the pairs with the same second code, takes eight, and then one of these.
    __m256i const nibble = _mm256_set1_epi8(15);
    __m256i const second = _mm256_and_si256(_mm256_srli_epi16(symbols, 4), nibble);
    __m256i const eight = _mm256_mask_blend_epi8(_mm256_test_epi8_mask(symbols, _mm256_set1_epi8(8)),
                                                 look_up_256(codable.low, second), look_up_256(codable.high, second));
    alignas(16) static constexpr std::uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    __mmask32 const uncodable = _mm256_testn_epi8_mask(eight, look_up_256(bit, _mm256_and_si256(symbols, nibble)));
    __m256i const final_symbols = _mm256_mask_mov_epi8(symbols, uncodable, _mm256_set1_epi8(-1));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes_out), final_symbols);
    __m256i const high_nibble = _mm256_set1_epi8(static_cast<char>(0xf0));
    std::uint64_t const first_escapes = _mm256_cmpeq_epi8_mask(_mm256_and_si256(final_symbols, nibble), nibble);
    std::uint64_t const second_escapes =
        _mm256_cmpeq_epi8_mask(_mm256_and_si256(final_symbols, high_nibble), high_nibble);
    if ((first_escapes | second_escapes) == 0) {
      return 0;
    }
    return _pdep_u64(first_escapes, 0x5555555555555555u) | _pdep_u64(second_escapes, 0xaaaaaaaaaaaaaaaau);
  }

  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static __m256i look_up_256(std::uint8_t const* table,
                                                                                      __m256i indices) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<__m128i const*>(table))),
                               indices);
  }
};

}  // namespace v0
}  // namespace tessera

#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#else

namespace tessera {
inline namespace v0 {

/// The portable block steps: there is nothing faster for this architecture.
template <class T, class Mantissa>
struct weight_block_steps_avx512 : weight_block_steps<T, Mantissa> {};

}  // namespace v0
}  // namespace tessera

#endif
