// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `compare_block_steps`: the block steps for an instruction set against the portable ones. Bytes and results are the
/// same, for sound and hostile input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/program/weights/block.hpp>
#include <tessera/program/weights/codebook.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/serial/group.hpp>

#include "support/catch.hpp"

namespace tessera_test::block_steps {

using namespace tessera;

using group_type = serial_group<32>;
inline constexpr group_type group;

template <class T>
constexpr weight_type type_of() {
  if constexpr (std::is_same_v<T, float>) {
    return weight_type::fp32;
  } else if constexpr (std::is_same_v<T, float16>) {
    return weight_type::fp16;
  } else if constexpr (std::is_same_v<T, float8_e4m3>) {
    return weight_type::fp8_e4m3;
  } else if constexpr (std::is_same_v<T, float8_e5m2>) {
    return weight_type::fp8_e5m2;
  } else {
    return weight_type::bf16;
  }
}

enum class content { gauss, narrow_gauss, wide, random_bits, zeros, nans, mixed };
inline constexpr content contents[] = {content::gauss, content::narrow_gauss, content::wide, content::random_bits,
                                       content::zeros, content::nans,         content::mixed};

template <class T>
T value_of(content what, std::uint64_t seed, int i) {
  using bits_type = typename scalar_traits<T>::bits_type;
  std::uint64_t const random = testing::hash(seed, static_cast<std::uint64_t>(i));
  switch (what) {
    case content::gauss:
      return testing::sample<T>(testing::gauss{.sigma = 0.02}, seed, static_cast<std::uint64_t>(i));
    case content::narrow_gauss:
      return testing::sample<T>(testing::gauss{.sigma = 1}, seed, static_cast<std::uint64_t>(i));
    case content::wide: {  // exponents far apart: many escapes
      auto const exponent = static_cast<std::uint32_t>(random >> 40) % (exponent_split<T>::largest_exponent + 1);
      return from_bits<T>(
          static_cast<bits_type>((random & 3) == 0 ? exponent << scalar_traits<T>::mantissa_bits : random >> 9));
    }
    case content::zeros:
      return from_bits<T>(0);
    case content::nans:
      return from_bits<T>(static_cast<bits_type>(~(random & 1)));
    case content::mixed:
      return random % 5 != 0 ? value_of<T>(content::gauss, seed, i)
                             : value_of<T>(contents[random % 4 + 2], seed ^ 1, i);
    default:
      return from_bits<T>(static_cast<bits_type>(random));
  }
}

/// Bytes at the very end of an allocation, so that a sanitizer finds the first byte too many.
inline std::unique_ptr<std::uint8_t[]> exact(std::vector<std::uint8_t> const& bytes) {
  auto copy = std::make_unique<std::uint8_t[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.get());
  return copy;
}

struct codebook {
  exponent_window window;
  pair_coder::encode_table encode;
  pair_coder::decode_table decode;
};

template <class T, class Steps>
std::unique_ptr<codebook> fit(weight_block<T> const& block) {
  std::uint64_t counts[256] = {};
  Steps::count(group, block, counts);
  auto scratch = std::make_unique<codebook_scratch>();
  auto book = std::make_unique<codebook>();
  book->window = fit_codebook(group, counts, exponent_split<T>::largest_exponent, *scratch);
  book->encode = pair_coder::make_encode_table(scratch->table);
  pair_coder::make_decode_table(scratch->table, book->decode);
  return book;
}

/// Codes one block by the portable steps and by others, and compares.
template <class T, class Mantissa, class Fast>
struct comparison {
  using portable = weight_block_steps<T, Mantissa>;

  weight_block<T> block;
  std::unique_ptr<weight_block_scratch> expected = std::make_unique<weight_block_scratch>();
  std::unique_ptr<weight_block_scratch> actual = std::make_unique<weight_block_scratch>();

  void reset_scratch(int filling) {
    std::memset(expected.get(), filling, sizeof(weight_block_scratch));
    std::memset(actual.get(), filling, sizeof(weight_block_scratch));
  }

  bool same_codes() const {
    return std::memcmp(expected->codes, actual->codes, static_cast<std::size_t>(block.coded / 2)) == 0;
  }

  void counts() const {
    std::uint64_t wanted[256] = {7};
    std::uint64_t got[256] = {7};
    portable::count(group, block, wanted);
    Fast::count(group, block, got);
    CHECK(std::equal(wanted, wanted + 256, got));
  }

  void split(exponent_window window, pair_coder::encode_table const* table) {
    reset_scratch(0xee);
    auto const size = static_cast<std::size_t>(portable::residual_planes.bytes(block.coded));
    std::vector<std::uint8_t> planes(size, 0xaa);
    auto fast_planes = exact(planes);
    int const escapes = portable::split(group, block, window, table, planes.data(), *expected);
    REQUIRE(Fast::split(group, block, window, table, fast_planes.get(), *actual) == escapes);
    CHECK(same_codes());
    CHECK(std::equal(planes.begin(), planes.end(), fast_planes.get()));
    if (escapes <= weight_stream_spec::largest_escapes) {
      CHECK(std::equal(expected->escapes, expected->escapes + escapes, actual->escapes));
    }
  }

  /// Packs the codes of `expected`, which must be those of `actual`. Returns the states and then the words.
  std::vector<std::uint8_t> pack(pair_coder::encode_table const& table) {
    std::memcpy(actual->codes, expected->codes, sizeof(actual->codes));
    packed_block<group_type> const wanted = portable::pack(group, block.coded, table, *expected);
    packed_block<group_type> const got = Fast::pack(group, block.coded, table, *actual);
    REQUIRE(got.words == wanted.words);
    CHECK(std::equal(wanted.state.values, wanted.state.values + 32, got.state.values));
    std::vector<std::uint8_t> payload(128);
    for (int lane = 0; lane < 32; ++lane) {
      store_little_endian(payload.data() + 4 * lane, wanted.state.values[lane]);
    }
    if (wanted.words <= weight_stream_spec::largest_words) {
      int const first = portable::words_end - wanted.words;
      CHECK(std::equal(expected->words + first, expected->words + portable::words_end, actual->words + first));
      for (int i = first; i < portable::words_end; ++i) {
        payload.resize(payload.size() + 2);
        store_little_endian(payload.data() + payload.size() - 2, expected->words[i]);
      }
    }
    return payload;
  }

  bool unpack(pair_coder::decode_table const& table, std::vector<std::uint8_t> const& payload) {
    reset_scratch(0xdd);
    std::vector<std::uint8_t> const words(payload.begin() + 128, payload.end());
    auto exact_states = exact({payload.begin(), payload.begin() + 128});
    auto exact_words = exact(words);
    int const count = static_cast<int>(words.size() / 2);
    bool const sound =
        portable::unpack(group, block.coded, table, exact_states.get(), exact_words.get(), count, *expected);
    CHECK(Fast::unpack(group, block.coded, table, exact_states.get(), exact_words.get(), count, *actual) == sound);
    CHECK(same_codes());
    return sound;
  }

  void unpack_hostile(pair_coder::decode_table const& table, std::vector<std::uint8_t> const& payload,
                      std::uint64_t seed) {
    std::vector<std::uint8_t> broken = payload;
    for (std::size_t i = 128; i < broken.size(); ++i) {
      broken[i] = static_cast<std::uint8_t>(testing::hash(seed, i));
    }
    unpack(table, broken);
    broken[3] = static_cast<std::uint8_t>(testing::hash(seed, 3) & 0x7f);
    unpack(table, broken);
    for (int i = 0; i < 128; ++i) {
      broken[static_cast<std::size_t>(i)] =
          static_cast<std::uint8_t>(testing::hash(seed + 1, static_cast<std::uint64_t>(i)));
    }
    CHECK_FALSE(unpack(table, broken));
    std::size_t const words = payload.size() / 2 - 64;
    for (std::size_t keep : {std::size_t{0}, std::size_t{1}, words / 2, words - std::min<std::size_t>(words, 1)}) {
      if (keep < words) {
        CHECK_FALSE(unpack(table, {payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(128 + 2 * keep)}));
      }
    }
    for (std::size_t more : {1, 17, 600}) {
      std::vector<std::uint8_t> longer = payload;
      longer.resize(payload.size() + 2 * more, 0x5a);
      CHECK_FALSE(unpack(table, longer));
    }
  }

  void join(exponent_window window, std::vector<std::uint8_t> const& normalizers, int log2_normalizer_block,
            std::uint64_t seed) {
    reset_scratch(0);
    for (int i = 0; i < block.coded / 2; ++i) {
      expected->codes[i] = static_cast<std::uint8_t>(testing::hash(seed, static_cast<std::uint64_t>(i)));
    }
    std::memcpy(actual->codes, expected->codes, sizeof(actual->codes));
    std::vector<std::uint8_t> planes(static_cast<std::size_t>(portable::residual_planes.bytes(block.coded)));
    for (std::size_t i = 0; i < planes.size(); ++i) {
      planes[i] = static_cast<std::uint8_t>(testing::hash(seed + 1, i));
    }
    auto exact_planes = exact(planes);
    auto exact_normalizers = exact(normalizers);
    std::uint8_t const* given = normalizers.empty() ? nullptr : exact_normalizers.get();
    auto const count = static_cast<std::size_t>(block.count);
    auto wanted = std::make_unique<T[]>(count);
    auto got = std::make_unique<T[]>(count);
    portable::join(group, window, exact_planes.get(), given, log2_normalizer_block, block.count, block.coded, *expected,
                   wanted.get());
    Fast::join(group, window, exact_planes.get(), given, log2_normalizer_block, block.count, block.coded, *actual,
               got.get());
    CHECK(std::memcmp(wanted.get(), got.get(), count * sizeof(T)) == 0);
  }
};

/// A codebook made for other weights: pairs that it cannot code, many escapes, more words than fit.
template <class T, class Mantissa>
std::unique_ptr<codebook> stale_codebook() {
  auto weights = std::make_unique<T[]>(4096);
  for (int i = 0; i < 4096; ++i) {
    weights[static_cast<std::size_t>(i)] = value_of<T>(content::narrow_gauss, 4, i);
  }
  weight_block<T> block{};
  block.weights = weights.get();
  block.count = 4096;
  block.coded = 4096;
  return fit<T, weight_block_steps<T, Mantissa>>(block);
}

template <class T, class Mantissa, class Fast>
void compare_block(content what, int count, bool with_normalizers, codebook const& stale, std::uint64_t seed) {
  INFO(scalar_traits<T>::name() << " keeps " << Mantissa::kept_bits << ", content " << static_cast<int>(what)
                                << ", count " << count << ", normalizers " << with_normalizers);
  weight_stream_spec spec;
  spec.type = type_of<T>();
  spec.mantissa_kept = Mantissa::kept_bits;
  spec.count = count;
  auto weights = std::make_unique<T[]>(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    weights[static_cast<std::size_t>(i)] = value_of<T>(what, seed, i);
  }
  std::vector<std::uint8_t> normalizers;
  for (int i = 0; with_normalizers && i < count; i += 64) {
    normalizers.push_back(static_cast<std::uint8_t>(testing::hash(seed + 2, static_cast<std::uint64_t>(i))));
  }
  comparison<T, Mantissa, Fast> both;
  both.block.weights = weights.get();
  both.block.normalizers = normalizers.empty() ? nullptr : normalizers.data();
  both.block.log2_normalizer_block = 6;
  both.block.count = count;
  both.block.coded = static_cast<int>(spec.coded_in(0));
  both.counts();

  auto const book = fit<T, weight_block_steps<T, Mantissa>>(both.block);
  both.split(book->window, nullptr);
  both.split(book->window, &book->encode);
  std::vector<std::uint8_t> const payload = both.pack(book->encode);
  if (payload.size() > 128) {
    CHECK(both.unpack(book->decode, payload));
  }
  // Words, and the base of windows, do not depend on the number of kept mantissa bits.
  constexpr bool is_thorough = Mantissa::kept_bits == 0 || Mantissa::template is_lossless<T>;
  if (is_thorough) {
    both.unpack_hostile(book->decode, payload, seed);
  }
  both.join(book->window, normalizers, 6, seed);
  both.join({static_cast<std::uint8_t>(seed * 37), static_cast<std::uint8_t>(seed * 91)}, normalizers, 6, seed + 3);

  both.split(stale.window, &stale.encode);
  std::vector<std::uint8_t> const stale_payload = both.pack(stale.encode);
  if (is_thorough) {
    both.unpack_hostile(stale.decode, stale_payload, seed + 5);
  }
  for (int base : {0, 243, 5, 17, 31, 200, 242, 255}) {
    if ((is_thorough && count <= 257) || base % 243 == 0) {  // nor do windows depend on how large a block is
      both.split({static_cast<std::uint8_t>(base), static_cast<std::uint8_t>(base * 3 + 60)}, &stale.encode);
    }
  }
}

template <class T, int Kept, template <class, class> class Fast>
void compare_type() {
  using mantissa = keep_mantissa<Kept>;
  using steps = Fast<T, mantissa>;
  auto const stale = stale_codebook<T, mantissa>();
  std::uint64_t seed = 1;
  int largest = 8191 + Kept % 2;
  for (content what : contents) {
    largest = 8191 + 8192 - largest;
    for (int count : {1, 7, 255, 256, 257, largest}) {
      compare_block<T, mantissa, steps>(what, count, false, *stale, ++seed);
      if constexpr (!mantissa::template is_lossless<T>) {
        compare_block<T, mantissa, steps>(what, count, true, *stale, ++seed);
      }
    }
  }
}

/// Compares Fast with weight_block_steps for all types and for mantissas that are kept whole, in part and not at all;
/// for further parts where long tests are.
template <template <class, class> class Fast>
void compare_block_steps() {
  constexpr bool is_long = TESSERA_LONG_TESTS != 0;
  SECTION("bf16") {
    compare_type<bfloat16, 7, Fast>();
    compare_type<bfloat16, 0, Fast>();
    compare_type<bfloat16, 3, Fast>();
    if constexpr (is_long) {
      compare_type<bfloat16, 1, Fast>();
      compare_type<bfloat16, 6, Fast>();
    }
  }
  SECTION("fp16") {
    compare_type<float16, 10, Fast>();
    compare_type<float16, 0, Fast>();
    compare_type<float16, 7, Fast>();
    if constexpr (is_long) {
      compare_type<float16, 1, Fast>();
      compare_type<float16, 2, Fast>();
      compare_type<float16, 3, Fast>();
      compare_type<float16, 9, Fast>();
    }
  }
  SECTION("fp32") {
    compare_type<float, 23, Fast>();
    compare_type<float, 0, Fast>();
    compare_type<float, 7, Fast>();
    if constexpr (is_long) {
      compare_type<float, 1, Fast>();
      compare_type<float, 2, Fast>();
      compare_type<float, 3, Fast>();
      compare_type<float, 15, Fast>();
    }
  }
  SECTION("fp8") {
    compare_type<float8_e4m3, 3, Fast>();
    compare_type<float8_e5m2, 2, Fast>();
  }
}

}  // namespace tessera_test::block_steps
