// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The rANS coder with AVX-512: the 32 lanes of a group are two vectors of sixteen states.
///
/// For the block steps (program/weights/block_avx512.hpp). Empty on other architectures.
#pragma once

#include <cstdint>

#include <tessera/entropy/rans_coder.hpp>
#include <tessera/program/weights/block.hpp>
#include <tessera/program/weights/codebook.hpp>

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

/// The coder of sixteen lanes.
struct avx512_coder {
  static constexpr int lanes = 16;

  /// Pops a symbol in each lane. It is in the lowest byte; the other bytes are meaningless.
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static __m512i pop(__m512i& state,
                                                                              pair_coder::decode_table const& table) {
    __m512i const slot = _mm512_and_si512(state, _mm512_set1_epi32(pair_coder::slots - 1));
    __m512i const entry = _mm512_i32gather_epi32(slot, table.entry, 4);
    __m512i const offset = _mm512_and_si512(_mm512_srli_epi32(entry, 8), _mm512_set1_epi32(0xfff));
    __m512i const quotient = _mm512_srli_epi32(state, pair_coder::probability_bits);
    state = _mm512_add_epi32(_mm512_mullo_epi32(_mm512_srli_epi32(entry, 20), quotient), offset);
    return entry;
  }

  /// Gives words to the lanes that want one.
  [[gnu::target("avx512bw,avx512vl,popcnt"), gnu::always_inline]] static void feed(__m512i& state,
                                                                                   std::uint8_t const*& at) {
    __mmask16 const wants = _mm512_cmplt_epu32_mask(state, _mm512_set1_epi32(pair_coder::lower_bound));
    __m512i const words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<__m256i const*>(at)));
    __m512i const in_lanes = _mm512_maskz_expand_epi32(wants, words);
    state = _mm512_mask_or_epi32(state, wants, _mm512_slli_epi32(state, pair_coder::word_bits), in_lanes);
    at += 2 * __builtin_popcount(wants);
  }

  /// Pushes a symbol in each lane. `spills`: the lanes that spill. Returns their words.
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static __m512i push(__m512i& state, __m512i symbols,
                                                                               pair_coder::encode_table const& table,
                                                                               __mmask16& spills) {
    __m512i const low = _mm512_i32gather_epi64(_mm512_castsi512_si256(symbols), table.entry, 8);
    __m512i const high = _mm512_i32gather_epi64(_mm512_extracti64x4_epi64(symbols, 1), table.entry, 8);
    __m512i const packed = _mm512_permutex2var_epi32(low, odd_indices(), high);
    __m512i const complement = _mm512_srli_epi32(packed, pair_coder::spill_shift);
    __m512i const frequency = _mm512_sub_epi32(_mm512_set1_epi32(pair_coder::slots), complement);
    __m512i const word = state;
    spills = _mm512_cmpge_epu32_mask(_mm512_srli_epi32(state, pair_coder::spill_shift), frequency);
    state = _mm512_mask_srli_epi32(state, spills, state, pair_coder::word_bits);
    // The high halves of the products with the reciprocals, first of the even lanes, then of the odd lanes. An entry's
    // reciprocal is in its low half, from which the multiplication takes it.
    __m512i const reciprocal = _mm512_permutex2var_epi32(low, even_indices(), high);
    __m512i const even = _mm512_srli_epi64(_mm512_mul_epu32(state, reciprocal), 32);
    __m512i const odd = _mm512_mul_epu32(_mm512_srli_epi64(state, 32), _mm512_srli_epi64(reciprocal, 32));
    __m512i const product = _mm512_mask_blend_epi32(0xaaaa, even, odd);
    __m512i const quotient = _mm512_srlv_epi32(product, _mm512_and_si512(packed, _mm512_set1_epi32(31)));
    __m512i const bias = _mm512_and_si512(_mm512_srli_epi32(packed, 5), _mm512_set1_epi32(0x1fff));
    state = _mm512_add_epi32(state, _mm512_add_epi32(bias, _mm512_mullo_epi32(quotient, complement)));
    return word;
  }

  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static __m512i even_indices() {
    return _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  }
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static __m512i odd_indices() {
    return _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  }
};

/// The states of a group's 32 lanes, with the symbols of up to four steps.
struct avx512_lanes {
  __m512i low;
  __m512i high;

  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static avx512_lanes load(void const* bytes) {
    auto const* const start = static_cast<std::uint8_t const*>(bytes);
    return {_mm512_loadu_si512(start), _mm512_loadu_si512(start + 64)};
  }
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] void store(void* bytes) const {
    auto* const start = static_cast<std::uint8_t*>(bytes);
    _mm512_storeu_si512(start, low);
    _mm512_storeu_si512(start + 64, high);
  }

  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] bool all_are_states() const {
    __m512i const wrong = _mm512_set1_epi32(static_cast<int>(0x80000000u));
    __m512i const bound = _mm512_set1_epi32(pair_coder::lower_bound);
    return _mm512_test_epi32_mask(_mm512_or_si512(low, high), wrong) == 0 &&
           _mm512_cmplt_epu32_mask(_mm512_min_epu32(low, high), bound) == 0;
  }
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] bool all_equal(std::uint32_t value) const {
    __m512i const one = _mm512_set1_epi32(static_cast<int>(value));
    return (_mm512_cmpneq_epu32_mask(low, one) | _mm512_cmpneq_epu32_mask(high, one)) == 0;
  }

  /// One step of decoding: the lanes' symbols enter `symbols` from above.
  [[gnu::target("avx512bw,avx512vl,popcnt"), gnu::always_inline]] void pop(avx512_lanes& symbols,
                                                                           std::uint8_t const*& at,
                                                                           pair_coder::decode_table const& table) {
    __m512i const low_entry = avx512_coder::pop(low, table);
    __m512i const high_entry = avx512_coder::pop(high, table);
    symbols.low = _mm512_or_si512(_mm512_srli_epi32(symbols.low, 8), _mm512_slli_epi32(low_entry, 24));
    symbols.high = _mm512_or_si512(_mm512_srli_epi32(symbols.high, 8), _mm512_slli_epi32(high_entry, 24));
    avx512_coder::feed(low, at);
    avx512_coder::feed(high, at);
  }

  /// One step of coding: the lanes' symbols leave `symbols` at the top. Words go to those that end at `end`.
  [[gnu::target("avx512bw,avx512vl,popcnt"), gnu::always_inline]] int push(avx512_lanes& symbols, int words,
                                                                           pair_coder::encode_table const& table,
                                                                           weight_block_scratch& scratch) {
    constexpr int end = weight_stream_spec::largest_words + 32;
    __mmask16 low_spills = 0;
    __mmask16 high_spills = 0;
    __m512i const low_words = avx512_coder::push(low, _mm512_srli_epi32(symbols.low, 24), table, low_spills);
    __m512i const high_words = avx512_coder::push(high, _mm512_srli_epi32(symbols.high, 24), table, high_spills);
    symbols.low = _mm512_slli_epi32(symbols.low, 8);
    symbols.high = _mm512_slli_epi32(symbols.high, 8);
    int const low_count = __builtin_popcount(low_spills);
    int const high_count = __builtin_popcount(high_spills);
    words += low_count + high_count;
    if (words <= weight_stream_spec::largest_words) {
      store_words(scratch.words + end - words, low_spills, low_words, low_count);
      store_words(scratch.words + end - words + low_count, high_spills, high_words, high_count);
    }
    return words;
  }

 private:
  [[gnu::target("avx512bw,avx512vl"), gnu::always_inline]] static void store_words(std::uint16_t* words,
                                                                                   __mmask16 spills, __m512i states,
                                                                                   int count) {
    __m256i const packed = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(spills, states));
    _mm256_mask_storeu_epi16(words, static_cast<__mmask16>((1u << count) - 1), packed);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera

#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#endif
