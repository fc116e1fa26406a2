// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The block steps with AVX2, where a group's 32 lanes are four vectors. They write the same bytes as the portable
/// steps, for every input.
///
///     if (tessera::best_simd_level() >= tessera::simd_level::avx2) {
///       using steps = tessera::weight_block_steps_avx2<tessera::bfloat16, tessera::keep_mantissa<7>>;
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
#include <tessera/program/weights/detail/coder_avx2.hpp>
#include <tessera/program/weights/detail/planes_avx2.hpp>
#include <tessera/tile/serial/clear_vectors.hpp>
#include <tessera/tile/serial/group.hpp>

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

namespace tessera {
inline namespace v0 {

/// The block steps with AVX2; see weight_block_steps.
template <class T, class Mantissa>
struct weight_block_steps_avx2 : weight_block_steps<T, Mantissa> {
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

  [[gnu::target("avx2,bmi2,popcnt")]] static packed_block<group_type> pack(group_type const&, int coded,
                                                                           pair_coder::encode_table const& table,
                                                                           weight_block_scratch& scratch) {
    detail::clear_vectors const at_end;
    auto state = detail::avx2_lanes::all(pair_coder::start());
    int words = 0;
    for (int row = coded / row_weights - 1; row >= 0; --row) {
      std::uint8_t const* const codes = scratch.codes + row * (row_weights / 2);
      for (int part = parts - 1; part >= 0; --part) {
        detail::avx2_lanes symbols = load_symbols(codes, part);
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

  [[gnu::target("avx2,bmi2,popcnt")]] static bool unpack(group_type const& group, int coded,
                                                         pair_coder::decode_table const& table,
                                                         std::uint8_t const* states, std::uint8_t const* words,
                                                         int word_count, weight_block_scratch& scratch) {
    detail::clear_vectors const at_end;
    detail::avx2_lanes state = detail::avx2_lanes::load(states);
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
  using bytes = detail::avx2_bytes;
  using row_type = detail::avx2_row<1 + Mantissa::kept_bits, weights_per_lane>;

  /// Symbols of a lane that are coded together: four, or two where a row has no more.
  static constexpr int pairs_per_part = pairs_per_lane < 4 ? pairs_per_lane : 4;
  static constexpr int parts = pairs_per_lane / pairs_per_part;

  [[gnu::target("avx2,popcnt"), gnu::always_inline]] static std::uint8_t const* unpack_row(
      detail::avx2_lanes& state, std::uint8_t const* at, pair_coder::decode_table const& table, std::uint8_t* codes) {
    detail::avx2_lanes symbols[parts];
    for (auto& part : symbols) {
      part = detail::avx2_lanes::all(0);
      for (int pair = 0; pair < pairs_per_part; ++pair) {
        state.pop(part, at, table);
      }
    }
    if constexpr (pairs_per_lane == 4) {
      symbols[0].store(codes);
    } else if constexpr (pairs_per_lane == 2) {
      for (int i = 0; i < 2; ++i) {
        __m256i const first = _mm256_srli_epi32(symbols[0].part[2 * i], 16);
        __m256i const second = _mm256_srli_epi32(symbols[0].part[2 * i + 1], 16);
        bytes::store(codes + 32 * i, bytes::low_halves(first, second));
      }
    } else {
      for (int i = 0; i < 4; ++i) {
        __m256i const first = bytes::swap_middle(symbols[0].part[i]);
        __m256i const second = bytes::swap_middle(symbols[1].part[i]);
        bytes::store(codes + 64 * i, _mm256_unpacklo_epi32(first, second));
        bytes::store(codes + 64 * i + 32, _mm256_unpackhi_epi32(first, second));
      }
    }
    return at;
  }

  /// Loads the symbols of one part of a row; in each lane the last symbol is on top.
  [[gnu::target("avx2"), gnu::always_inline]] static detail::avx2_lanes load_symbols(std::uint8_t const* codes,
                                                                                     int part) {
    if constexpr (pairs_per_lane == 4) {
      return detail::avx2_lanes::load(codes);
    } else {
      detail::avx2_lanes symbols;
      for (int i = 0; i < 4; ++i) {
        if constexpr (pairs_per_lane == 2) {
          symbols.part[i] = _mm256_slli_epi32(_mm256_cvtepu16_epi32(bytes::load_half(codes + 16 * i)), 16);
        } else {
          __m256 const first = _mm256_castsi256_ps(bytes::load(codes + 64 * i));
          __m256 const second = _mm256_castsi256_ps(bytes::load(codes + 64 * i + 32));
          __m256 const mine =
              part == 0 ? _mm256_shuffle_ps(first, second, 0x88) : _mm256_shuffle_ps(first, second, 0xdd);
          symbols.part[i] = bytes::swap_middle(_mm256_castps_si256(mine));
        }
      }
      return symbols;
    }
  }

  [[gnu::target("avx2,bmi2,popcnt")]] static void join_fast(exponent_window window, std::uint8_t const* planes,
                                                            int count, int coded, weight_block_scratch const& scratch,
                                                            T* weights) {
    detail::clear_vectors const at_end;
    typename bits::exponent_bytes const exponents = bits::exponents(window);
    row_type row_planes;
    for (int row = 0; row < coded / row_weights; ++row) {
      row_planes.open(const_cast<std::uint8_t*>(planes), coded, row);  // only read
      row_planes.gather(planes, coded, row);
      for (int in_row = 0; in_row < row_weights; in_row += 32) {
        int const first = row * row_weights + in_row;
        __m256i const codes = bytes::template expand<4>(scratch.codes + first / 2);
        if (first + 32 <= count) {
          join_32(exponents, codes, row_planes, in_row, weights + first);
        } else if (first < count) {
          T last[32];
          join_32(exponents, codes, row_planes, in_row, last);
          std::memcpy(weights + first, last, static_cast<std::size_t>(count - first) * sizeof(T));
        }
      }
    }
  }

  [[gnu::target("avx2"), gnu::always_inline]] static void join_32(typename bits::exponent_bytes const& exponents,
                                                                  __m256i codes, row_type const& row, int in_row,
                                                                  T* weights) {
    constexpr int kept = Mantissa::kept_bits;
    constexpr int mantissa_bits = scalar_traits<T>::mantissa_bits;
    __m256i const exponent_high = bytes::look_up(exponents.high, codes);
    if constexpr (sizeof(T) == 1) {
      static constexpr auto residuals = bits::residuals();
      __m256i const high = bytes::look_up(residuals.high, row.template load<0>(in_row));
      bytes::store(weights, _mm256_or_si256(high, exponent_high));
    } else if constexpr (bits::high_mantissa_bits == 7) {
      __m256i residual;
      std::uint8_t const* below = nullptr;
      if constexpr (kept > 7) {
        residual = row.template load<1>(in_row);
        below = row.bits[0] + 2 * in_row;
      } else {
        residual = bytes::template shift_left<7 - kept>(row.template load<0>(in_row));
      }
      __m256i const sign = _mm256_set1_epi8(static_cast<char>(0x80));
      __m256i const exponent_low = bytes::look_up(exponents.low, codes);
      __m256i const low = _mm256_or_si256(_mm256_andnot_si256(sign, residual), exponent_low);
      __m256i const high = _mm256_or_si256(_mm256_and_si256(sign, residual), exponent_high);
      store_halves(low, high, below, weights);
    } else {
      static constexpr auto residuals = bits::residuals();
      __m256i low;
      __m256i high;
      if constexpr (bits::is_lossless) {
        low = row.template load<0, 0>(in_row);
        high = row.template load<1>(in_row);
      } else if constexpr (mantissa_bits - kept > 8) {
        low = _mm256_setzero_si256();
        high = bytes::template shift_left<mantissa_bits - kept - 8>(row.template load<0>(in_row));
      } else {
        __m256i const residual = row.template load<0>(in_row);
        low = bytes::template shift_left<mantissa_bits - kept>(residual);
        high = bytes::template shift_right<8 - mantissa_bits + kept>(residual);
      }
      high = _mm256_or_si256(bytes::look_up(residuals.high, high), exponent_high);
      store_halves(low, high, nullptr, weights);
    }
  }

  /// Writes weights from their two highest bytes, and for fp32 the sixteen bits below them (null: zeros).
  [[gnu::target("avx2"), gnu::always_inline]] static void store_halves(__m256i low, __m256i high,
                                                                       std::uint8_t const* below, T* weights) {
    low = bytes::swap_middle(low);
    high = bytes::swap_middle(high);
    __m256i const halves[2] = {_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)};
    for (int i = 0; i < 2; ++i) {
      if constexpr (sizeof(T) == 2) {
        bytes::store(weights + 16 * i, halves[i]);
      } else {
        __m256i const lower =
            below == nullptr ? _mm256_setzero_si256() : bytes::swap_middle(bytes::load(below + 32 * i));
        __m256i const upper = bytes::swap_middle(halves[i]);
        bytes::store(weights + 16 * i, _mm256_unpacklo_epi16(lower, upper));
        bytes::store(weights + 16 * i + 8, _mm256_unpackhi_epi16(lower, upper));
      }
    }
  }

  [[gnu::target("avx2,bmi2,popcnt")]] static int split_fast(weight_block<T> const& block, exponent_window window,
                                                            pair_coder::encode_table const* table, std::uint8_t* planes,
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
      std::uint64_t masks[row_weights / 64] = {};
      std::uint64_t any = 0;
      for (int i = 0; i < row_weights / 32; ++i) {
        __m256i const exponents = split_32(weights + 32 * i, row_planes, 32 * i);
        std::uint64_t const mask = store_codes(exponents, window, codable, scratch.codes + (first + 32 * i) / 2);
        masks[i / 2] |= mask << (i % 2 * 32);
        any |= mask;
      }
      row_planes.scatter(planes, block.coded, row);
      if (any != 0) {
        escapes += detail::list_row_escapes<T, Mantissa>(block, masks, row_weights / 64, first, escapes, scratch);
      }
    }
    return escapes;
  }

  /// Writes the residuals of 32 weights, and returns their exponents.
  [[gnu::target("avx2"), gnu::always_inline]] static __m256i split_32(T const* weights, row_type& row, int in_row) {
    constexpr int high_bits = bits::high_mantissa_bits;
    __m256i low = _mm256_setzero_si256();
    __m256i high;
    if constexpr (sizeof(T) == 1) {
      high = bytes::load(weights);
    } else {
      load_halves(weights, sizeof(T) == 4 ? row.bits[0] + 2 * in_row : nullptr, low, high);
    }
    __m256i const mantissa_mask = _mm256_set1_epi8(static_cast<char>((1 << high_bits) - 1));
    if constexpr (high_bits == 7) {
      // low: the exponent's last bit and the mantissa; high: the sign and the rest of the exponent
      __m256i const sign = _mm256_set1_epi8(static_cast<char>(0x80));
      __m256i const residual = _mm256_or_si256(_mm256_and_si256(low, mantissa_mask), _mm256_and_si256(high, sign));
      row.template store<(sizeof(T) == 4 ? 1 : 0)>(in_row, residual);
      return _mm256_or_si256(bytes::template shift_left<1>(high), bytes::template shift_right<7>(low));
    } else {
      __m256i const sign = bytes::template shift_left<high_bits>(bytes::template shift_right<7>(high));
      __m256i const residual = _mm256_or_si256(_mm256_and_si256(high, mantissa_mask), sign);
      if constexpr (sizeof(T) == 2) {
        row.template store<0, 0>(in_row, low);
        row.template store<1>(in_row, residual);
      } else {
        row.template store<0>(in_row, residual);
      }
      __m256i const exponent_mask = _mm256_set1_epi8((1 << scalar_traits<T>::exponent_bits) - 1);
      return _mm256_and_si256(bytes::template shift_right<high_bits>(high), exponent_mask);
    }
  }

  /// Undoes store_halves.
  [[gnu::target("avx2"), gnu::always_inline]] static void load_halves(T const* weights, std::uint8_t* below,
                                                                      __m256i& low, __m256i& high) {
    __m256i halves[2];
    for (int i = 0; i < 2; ++i) {
      if constexpr (sizeof(T) == 2) {
        halves[i] = bytes::load(weights + 16 * i);
      } else {
        __m256i const first = bytes::load(weights + 16 * i);
        __m256i const second = bytes::load(weights + 16 * i + 8);
        __m256i const mask = _mm256_set1_epi32(0xffff);
        bytes::store(below + 32 * i, bytes::low_halves(_mm256_and_si256(first, mask), _mm256_and_si256(second, mask)));
        halves[i] = bytes::low_halves(_mm256_srli_epi32(first, 16), _mm256_srli_epi32(second, 16));
      }
    }
    __m256i const mask = _mm256_set1_epi16(0xff);
    low = bytes::swap_middle(_mm256_packus_epi16(_mm256_and_si256(halves[0], mask), _mm256_and_si256(halves[1], mask)));
    high = bytes::swap_middle(_mm256_packus_epi16(_mm256_srli_epi16(halves[0], 8), _mm256_srli_epi16(halves[1], 8)));
  }

  /// Writes the codes of 32 exponents, and returns a mask of the escapes.
  [[gnu::target("avx2,bmi2"), gnu::always_inline]] static std::uint32_t store_codes(
      __m256i exponents, exponent_window window, detail::codable_pairs const& codable, std::uint8_t* codes_out) {
    __m256i const offset = _mm256_sub_epi8(exponents, _mm256_set1_epi8(static_cast<char>(window.base)));
    __m256i const outside =
        _mm256_cmpeq_epi8(_mm256_max_epu8(offset, _mm256_set1_epi8(exponent_window::neighbours)), offset);
    __m256i const extra = _mm256_cmpeq_epi8(exponents, _mm256_set1_epi8(static_cast<char>(window.extra)));
    __m256i const other = _mm256_blendv_epi8(_mm256_set1_epi8(exponent_window::escape_code),
                                             _mm256_set1_epi8(exponent_window::extra_code), extra);
    __m256i const codes = _mm256_blendv_epi8(offset, other, outside);
    __m128i const symbols = bytes::low_bytes(_mm256_maddubs_epi16(codes, _mm256_set1_epi16(0x1001)));
    // Of the sixteen bits of the pairs with the same second code, takes eight (bit 3 of the symbol says which), and
    // then one of these.
    __m128i const nibble = _mm_set1_epi8(15);
    __m128i const second = _mm_and_si128(_mm_srli_epi16(symbols, 4), nibble);
    __m128i const eight = _mm_blendv_epi8(bytes::look_up_half(codable.low, second),
                                          bytes::look_up_half(codable.high, second), _mm_slli_epi16(symbols, 4));
    alignas(16) static constexpr std::uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    __m128i const can_code = _mm_and_si128(eight, bytes::look_up_half(bit, _mm_and_si128(symbols, nibble)));
    __m128i const final_symbols = _mm_or_si128(symbols, _mm_cmpeq_epi8(can_code, _mm_setzero_si128()));
    bytes::store_half(codes_out, final_symbols);
    __m128i const high_nibble = _mm_set1_epi8(static_cast<char>(0xf0));
    __m128i const first_escapes = _mm_cmpeq_epi8(_mm_and_si128(final_symbols, nibble), nibble);
    __m128i const second_escapes = _mm_cmpeq_epi8(_mm_and_si128(final_symbols, high_nibble), high_nibble);
    __m128i const escapes = _mm_or_si128(first_escapes, second_escapes);
    if (_mm_testz_si128(escapes, escapes) != 0) {
      return 0;
    }
    return _pdep_u32(static_cast<unsigned>(_mm_movemask_epi8(first_escapes)), 0x55555555u) |
           _pdep_u32(static_cast<unsigned>(_mm_movemask_epi8(second_escapes)), 0xaaaaaaaau);
  }
};

}  // namespace v0
}  // namespace tessera

#else

namespace tessera {
inline namespace v0 {

/// The portable block steps: there is nothing faster for this architecture.
template <class T, class Mantissa>
struct weight_block_steps_avx2 : weight_block_steps<T, Mantissa> {};

}  // namespace v0
}  // namespace tessera

#endif
