// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/algorithm/paged_cache/quantized_codec.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/program/paged_cache/quantized_page_reader.hpp>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using key_quantizer = asymmetric_quantizer<3, 16>;
using value_quantizer = symmetric_quantizer<8, 32>;
using directions = quantized_codec<key_quantizer, value_quantizer, page_vectors::directions>;
using plain = quantized_codec<key_quantizer, value_quantizer>;

constexpr int channels = 96;

std::uint32_t random_bits(std::uint64_t seed, int place, int bits) {
  return static_cast<std::uint32_t>(testing::hash(seed, static_cast<std::uint64_t>(place))) & ((1U << bits) - 1U);
}
/// Codes of keys and of values, each in the order of a page.
int key_code(int token, int channel) {
  return static_cast<int>(random_bits(1, channel * 64 + token, 3));
}
int value_code(int token, int channel) {
  return static_cast<int>(random_bits(2, token * channels + channel, 8)) % 128 - 64;
}
/// Parameters of groups of 16 tokens of a channel, and of 32 channels of a token.
asymmetric_params<float> key_params(int channel, int group) {
  return {0.25F * static_cast<float>(1 + (channel + group) % 5), -static_cast<float>(channel % 3 + 2 * group)};
}
symmetric_params value_params(int token, int group) {
  return {0.125F * static_cast<float>(1 + token % 7 + group)};
}
float length_of(int layer, int part, int token) {
  return 0.5F * static_cast<float>(1 + token % 5 + 10 * layer + 3 * part);
}

/// A page of two layers that is written bit by bit as page_codes.hpp says, where its codec says.
template <class C>
struct written_page {
  cache_page_format format{channels, 3, 8, 3, C::most_layers};
  std::vector<std::uint64_t> memory;

  written_page() : memory(static_cast<std::size_t>(C::page_bytes(format) / 8), 0) {
    quantized_page_header header{};
    header.tokens.retained = std::uint64_t{1} << 5 | std::uint64_t{1} << 63;
    header.tokens.first_row = 70;
    header.not_finite[key_part] = std::uint64_t{1} << 9;
    header.not_finite[value_part] = std::uint64_t{1} << 10;
    put(0, header);
    for (int channel = 0; channel < channels; ++channel) {
      for (int group = 0; group < 4; ++group) {
        put(C::key_params() + 8 * (channel * 4 + group), key_params(channel, group));
      }
      for (int token = 0; token < 64; ++token) {
        put_bits(C::key_codes(format), channel * 64 + token, 3, key_code(token, channel));
        put_bits(C::value_codes(format), token * channels + channel, 8, value_code(token, channel));
      }
    }
    for (int token = 0; token < 64; ++token) {
      for (int group = 0; group < 3; ++group) {
        put(C::value_params(format) + 4 * (token * 3 + group), value_params(token, group));
      }
      for (int list = 0; C::has_lengths && list < 4; ++list) {  // layer, then keys and values
        put(C::lengths(format) + 2 * (list * 64 + token), store<float16>(length_of(list / 2, list % 2, token)));
      }
    }
  }
  [[nodiscard]] std::byte* bytes() { return reinterpret_cast<std::byte*>(memory.data()); }
  template <class Value>
  void put(int offset, Value const& value) {
    std::memcpy(bytes() + offset, &value, sizeof value);
  }
  /// Bit b of all codes is bit b % 8 of byte b / 8.
  void put_bits(int offset, int place, int bits, int code) {
    for (int bit = 0; bit < bits; ++bit) {
      int const at = place * bits + bit;
      auto const set = static_cast<unsigned char>((static_cast<unsigned>(code) >> bit & 1U) << at % 8);
      bytes()[offset + at / 8] |= std::byte{set};
    }
  }
  [[nodiscard]] quantized_page_reader<C> reader(int layer) { return {{}, format, bytes(), layer}; }
};

double key(int token, int channel) {
  auto const by = key_params(channel, token / 16);
  return double{by.minimum} + key_code(token, channel) * double{by.scale};
}
double value(int token, int channel) {
  return value_code(token, channel) * double{value_params(token, channel / 32).scale};
}

/// How many keys and values of a page are wrong in a layer; those that are not finite aside.
template <class C>
int wrong(quantized_page_reader<C> const& reader, int layer) {
  int count = 0;
  for (int token = 0; token < 64; ++token) {
    double const of_key = C::has_lengths ? double{length_of(layer, key_part, token)} : 1.0;
    double const of_value = C::has_lengths ? double{length_of(layer, value_part, token)} : 1.0;
    for (int channel = 0; channel < channels; ++channel) {
      bool const is_key = double{reader.key(token, channel)} == of_key * key(token, channel) &&
                          double{reader.coded_key(token, channel)} == key(token, channel);
      bool const is_value = double{reader.value(token, channel)} == of_value * value(token, channel) &&
                            double{reader.coded_value(token, channel)} == value(token, channel);
      count += (token == 9 || is_key ? 0 : 1) + (token == 10 || is_value ? 0 : 1);
    }
  }
  return count;
}

}  // namespace

// Steps and lengths are small multiples of powers of two, so that floats hold all products and sums exactly.
TEST_CASE("keys and values of a page are its codes by the quantizers, times lengths if it has any", "[host]") {
  written_page<plain> alone;
  CHECK(wrong(alone.reader(0), 0) == 0);
  written_page<directions> pair;
  CHECK(wrong(pair.reader(0), 0) == 0);
  CHECK(wrong(pair.reader(1), 1) == 0);
}

TEST_CASE("a vector that is not finite is read as NaNs, and its partner as it is", "[host]") {
  written_page<plain> alone;
  written_page<directions> pair;
  for (int const channel : {0, 31, 95}) {
    CHECK(std::isnan(alone.reader(0).key(9, channel)));
    CHECK(std::isnan(pair.reader(1).value(10, channel)));
    CHECK(double{alone.reader(0).value(9, channel)} == value(9, channel));
    CHECK(double{alone.reader(0).key(10, channel)} == key(10, channel));
  }
  CHECK(pair.reader(0).header().has_codes(value_part, 9));
  CHECK_FALSE(pair.reader(0).header().has_codes(key_part, 9));
  CHECK_FALSE(pair.reader(0).header().has_codes(value_part, 63));
}

TEST_CASE("a page of codes says which tokens are retained and in which rows", "[host]") {
  written_page<plain> page;
  auto const reader = page.reader(0);
  CHECK(reader.is_retained(5));
  CHECK(reader.is_retained(63));
  CHECK_FALSE(reader.is_retained(9));
  CHECK(reader.row_of(5) == 70);
  CHECK(reader.row_of(63) == 71);
}

TEST_CASE("scores and sums of values are those of the keys and values that are read", "[host]") {
  written_page<directions> page;
  std::vector<float> query(channels);
  testing::fill(testing::gauss{}, 4, query.data(), query.size());
  for (int layer = 0; layer < 2; ++layer) {
    auto const reader = page.reader(layer);
    for (int const token : {0, 31, 62}) {
      double product = 0;
      double size = 0;
      for (int channel = 0; channel < channels; ++channel) {
        double const term = double{query[static_cast<std::size_t>(channel)]} * double{reader.key(token, channel)};
        product += term;
        size += std::fabs(term);
      }
      CHECK(std::fabs(double{reader.score(token, query.data(), nullptr, 0.0F)} - product) < 1e-5 * size);
      CHECK(double{reader.add(2.0F, 0.5F, token, 40)} == 2.0 + 0.5 * double{reader.value(token, 40)});
    }
  }
  CHECK(page.reader(0).key_scale(3) == 1.0F);
  CHECK(page.reader(0).key_minimum(3) == 0.0F);
}
