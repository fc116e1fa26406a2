// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The rANS coder with AVX2: the 32 lanes of a group are four vectors of eight states.
///
/// For the block steps (program/weights/block_avx2.hpp). Empty on other architectures.
#pragma once

#include <cstdint>

#include <tessera/entropy/rans_coder.hpp>
#include <tessera/program/weights/block.hpp>
#include <tessera/program/weights/codebook.hpp>
#include <tessera/program/weights/detail/planes_avx2.hpp>

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Tables for what AVX-512 has instructions for: where numbers go, by a mask of eight lanes.
struct avx2_lane_tables {
  /// Lane i of the mask gets number [i], so that numbers go to the lanes of the mask in order.
  std::uint8_t expand[256][8];
  std::uint8_t compress[256][8];  ///< the inverse; the last of the mask's lanes goes to slot 7

  constexpr avx2_lane_tables() : expand{}, compress{} {
    for (int mask = 0; mask < 256; ++mask) {
      int below = 0;
      int slot = 8 - popcount(static_cast<std::uint32_t>(mask));
      for (int lane = 0; lane < 8; ++lane) {
        expand[mask][lane] = static_cast<std::uint8_t>(below);
        if ((mask >> lane & 1) != 0) {
          compress[mask][slot++] = static_cast<std::uint8_t>(lane);
          ++below;
        }
      }
    }
  }
};
inline constexpr avx2_lane_tables avx2_tables;

/// The coder of eight lanes. States are below 2^31, so that signed comparisons are right.
struct avx2_coder {
  /// Pops a symbol in each lane. It is in the lowest byte; the other bytes are meaningless.
  [[gnu::target("avx2"), gnu::always_inline]] static __m256i pop(__m256i& state,
                                                                 pair_coder::decode_table const& table) {
    __m256i const slot = _mm256_and_si256(state, _mm256_set1_epi32(pair_coder::slots - 1));
    __m256i const entry = _mm256_i32gather_epi32(reinterpret_cast<int const*>(table.entry), slot, 4);
    __m256i const offset = _mm256_and_si256(_mm256_srli_epi32(entry, 8), _mm256_set1_epi32(0xfff));
    __m256i const quotient = _mm256_srli_epi32(state, pair_coder::probability_bits);
    state = _mm256_add_epi32(_mm256_mullo_epi32(_mm256_srli_epi32(entry, 20), quotient), offset);
    return entry;
  }

  /// Gives words to the lanes that want one.
  [[gnu::target("avx2,popcnt"), gnu::always_inline]] static void feed(__m256i& state, std::uint8_t const*& at) {
    __m256i const wants = _mm256_cmpgt_epi32(_mm256_set1_epi32(pair_coder::lower_bound), state);
    auto const mask = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(wants)));
    __m256i const words = _mm256_cvtepu16_epi32(avx2_bytes::load_half(at));
    __m256i const slots = _mm256_cvtepu8_epi32(avx2_bytes::load_quarter(avx2_tables.expand[mask]));
    __m256i const fed =
        _mm256_or_si256(_mm256_slli_epi32(state, pair_coder::word_bits), _mm256_permutevar8x32_epi32(words, slots));
    state = _mm256_blendv_epi8(state, fed, wants);
    at += 2 * __builtin_popcount(mask);
  }

  /// Pushes a symbol in each lane. Returns the words, valid in the lanes that spill, which are the bits of `spills`.
  [[gnu::target("avx2"), gnu::always_inline]] static __m256i push(__m256i& state, __m256i symbols,
                                                                  pair_coder::encode_table const& table,
                                                                  unsigned& spills) {
    auto const* const entries = reinterpret_cast<long long const*>(table.entry);
    __m256 const low = _mm256_castsi256_ps(_mm256_i32gather_epi64(entries, _mm256_castsi256_si128(symbols), 8));
    __m256 const high = _mm256_castsi256_ps(_mm256_i32gather_epi64(entries, _mm256_extracti128_si256(symbols, 1), 8));
    __m256i const packed = avx2_bytes::swap_middle(_mm256_castps_si256(_mm256_shuffle_ps(low, high, 0xdd)));
    __m256i const complement = _mm256_srli_epi32(packed, pair_coder::spill_shift);
    __m256i const frequency = _mm256_sub_epi32(_mm256_set1_epi32(pair_coder::slots), complement);
    __m256i const word = state;
    __m256i const keeps = _mm256_cmpgt_epi32(frequency, _mm256_srli_epi32(state, pair_coder::spill_shift));
    spills = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(keeps))) ^ 0xffu;
    state = _mm256_blendv_epi8(_mm256_srli_epi32(state, pair_coder::word_bits), state, keeps);
    // The high halves of the products with the reciprocals, first of the even lanes, then of the odd lanes.
    __m256i const reciprocal = avx2_bytes::swap_middle(_mm256_castps_si256(_mm256_shuffle_ps(low, high, 0x88)));
    __m256i const even = _mm256_srli_epi64(_mm256_mul_epu32(state, reciprocal), 32);
    __m256i const odd = _mm256_mul_epu32(_mm256_srli_epi64(state, 32), _mm256_srli_epi64(reciprocal, 32));
    __m256i const shift = _mm256_and_si256(packed, _mm256_set1_epi32(31));
    __m256i const quotient = _mm256_srlv_epi32(_mm256_blend_epi32(even, odd, 0xaa), shift);
    __m256i const bias = _mm256_and_si256(_mm256_srli_epi32(packed, 5), _mm256_set1_epi32(0x1fff));
    state = _mm256_add_epi32(state, _mm256_add_epi32(bias, _mm256_mullo_epi32(quotient, complement)));
    return word;
  }

  /// Writes the words of the lanes that spilled, so that they end at `end`; up to eight words before that are
  /// overwritten.
  [[gnu::target("avx2"), gnu::always_inline]] static void store_words(std::uint16_t* end, unsigned spills,
                                                                      __m256i states) {
    __m256i const slots = _mm256_cvtepu8_epi32(avx2_bytes::load_quarter(avx2_tables.compress[spills]));
    __m256i words = _mm256_and_si256(_mm256_permutevar8x32_epi32(states, slots), _mm256_set1_epi32(0xffff));
    words = avx2_bytes::low_halves(words, words);
    avx2_bytes::store_half(end - 8, _mm256_castsi256_si128(words));
  }
};

/// The states of a group's 32 lanes, or the symbols of up to four steps.
struct avx2_lanes {
  __m256i part[4];

  [[gnu::target("avx2"), gnu::always_inline]] static avx2_lanes load(void const* bytes) {
    auto const* const start = static_cast<std::uint8_t const*>(bytes);
    return {{avx2_bytes::load(start), avx2_bytes::load(start + 32), avx2_bytes::load(start + 64),
             avx2_bytes::load(start + 96)}};
  }
  [[gnu::target("avx2"), gnu::always_inline]] static avx2_lanes all(std::uint32_t value) {
    __m256i const one = _mm256_set1_epi32(static_cast<int>(value));
    return {{one, one, one, one}};
  }
  [[gnu::target("avx2"), gnu::always_inline]] void store(void* bytes) const {
    for (int i = 0; i < 4; ++i) {
      avx2_bytes::store(static_cast<std::uint8_t*>(bytes) + 32 * i, part[i]);
    }
  }

  [[gnu::target("avx2"), gnu::always_inline]] bool all_are_states() const {
    __m256i wrong = _mm256_setzero_si256();
    for (__m256i state : part) {
      // True for negative states, too.
      __m256i const low = _mm256_cmpgt_epi32(_mm256_set1_epi32(pair_coder::lower_bound), state);
      wrong = _mm256_or_si256(wrong, low);
    }
    return _mm256_testz_si256(wrong, wrong) != 0;
  }
  [[gnu::target("avx2"), gnu::always_inline]] bool all_equal(std::uint32_t value) const {
    __m256i wrong = _mm256_setzero_si256();
    for (__m256i state : part) {
      wrong = _mm256_or_si256(wrong, _mm256_xor_si256(state, _mm256_set1_epi32(static_cast<int>(value))));
    }
    return _mm256_testz_si256(wrong, wrong) != 0;
  }

  /// One step of decoding: the lanes' symbols enter `symbols` from above.
  [[gnu::target("avx2,popcnt"), gnu::always_inline]] void pop(avx2_lanes& symbols, std::uint8_t const*& at,
                                                              pair_coder::decode_table const& table) {
    for (int i = 0; i < 4; ++i) {
      __m256i const entry = avx2_coder::pop(part[i], table);
      symbols.part[i] = _mm256_or_si256(_mm256_srli_epi32(symbols.part[i], 8), _mm256_slli_epi32(entry, 24));
    }
    for (__m256i& state : part) {
      avx2_coder::feed(state, at);
    }
  }

  /// One step of coding: the lanes' symbols leave `symbols` at the top. Words go before the `words` words that are
  /// there.
  [[gnu::target("avx2,popcnt"), gnu::always_inline]] int push(avx2_lanes& symbols, int words,
                                                              pair_coder::encode_table const& table,
                                                              weight_block_scratch& scratch) {
    std::uint16_t* end = scratch.words + weight_stream_spec::largest_words + 32 - words;
    __m256i word[4];
    unsigned spills[4];
    for (int i = 0; i < 4; ++i) {
      word[i] = avx2_coder::push(part[i], _mm256_srli_epi32(symbols.part[i], 24), table, spills[i]);
      symbols.part[i] = _mm256_slli_epi32(symbols.part[i], 8);
      words += __builtin_popcount(spills[i]);
    }
    if (words <= weight_stream_spec::largest_words) {
      for (int i = 3; i >= 0; --i) {
        avx2_coder::store_words(end, spills[i], word[i]);
        end -= __builtin_popcount(spills[i]);
      }
    }
    return words;
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera

#endif
