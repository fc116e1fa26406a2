// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/bits.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/mix_bits.hpp>
#include <tessera/program/attention/detail/row_codes.hpp>
#include <tessera/quantize/granularity.hpp>
#include <tessera/reduce/absolute_maximum_or_nan.hpp>
#include <tessera/tile/codes/value_slot.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using bytes = smoothed<symmetric_quantizer<8, per_thread>, sampled_mean>;
using values = sampled_range<float8_quantizer<float8_e4m3>>;

/// Numbers of all magnitudes, halves of integers, infinities and NaNs.
std::vector<float> numbers(std::uint64_t seed, int count) {
  std::vector<float> made;
  for (int i = 0; i < count; ++i) {
    std::uint64_t const random = mix_bits(seed, static_cast<std::uint64_t>(i));
    float const half = static_cast<float>(static_cast<int>(random % 600) - 300) * 0.5F;
    float const any = bit_cast<float>(static_cast<std::uint32_t>(random >> 20));
    float const small = bit_cast<float>((static_cast<std::uint32_t>(random >> 20) & 0x83ffffffU) + 0x3a000000U);
    made.push_back(i % 3 == 0 ? half : i % 3 == 1 ? any : small);
  }
  return made;
}

constexpr float reciprocals[] = {1.0F, 0.37F, 0x1p-20F, 3e38F, 0.0F};

}  // namespace

TEST_CASE("codes of a row are those of its values, whatever these are", "[host]") {
  static_assert(detail::has_signed_bytes<bytes> && !detail::has_signed_bytes<symmetric_quantizer<4, per_thread>>);
  for (int count : {0, 7, 32, 80, 128}) {
    for (float reciprocal : reciprocals) {
      auto const row = numbers(5, count);
      std::int8_t codes[128] = {};
      detail::encode_row<bytes>(row.data(), count, reciprocal, codes);
      int wrong = 0;
      for (int i = 0; i < count; ++i) {
        wrong += codes[i] != bytes::encode_scaled(row[static_cast<std::size_t>(i)], reciprocal);
      }
      CAPTURE(count, reciprocal);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("codes of channels lie in slots, and are those of their values", "[host]") {
  static_assert(detail::has_e4m3<values> && !detail::has_e4m3<float8_quantizer<float8_e5m2>>);
  constexpr int channels = 60;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    auto const rows = numbers(seed, 32 * 64);
    std::vector<float> scales;
    for (int i = 0; i < channels; ++i) {
      scales.push_back(reciprocals[i % 5]);
    }
    static float8_e4m3 codes[channels * 48];
    detail::encode_slots<values>(rows.data(), 64, scales.data(), channels, codes, 48);
    int wrong = 0;
    for (int i = 0; i < channels * 32; ++i) {
      int const channel = i / 32;
      float const value = rows[static_cast<std::size_t>(i % 32 * 64 + channel)];
      float const reciprocal = scales[static_cast<std::size_t>(channel)];
      wrong += codes[channel * 48 + value_slot(i % 32)] != values::encode_scaled(value, reciprocal);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("the largest magnitude of a row is that of its values, NaN and infinity above all", "[host]") {
  absolute_maximum_or_nan_reducer const reducer;
  for (int count = 0; count < 40; ++count) {
    for (float last :
         {1.0F, -2000.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> row;
      auto expected = reducer.identity();
      for (int i = 0; i < count; ++i) {
        row.push_back(i == count / 2 ? last : static_cast<float>(i) - 20.0F);
        reducer.push(expected, row.back());
      }
      CHECK(detail::largest_magnitude(row.data(), count) == expected);
    }
  }
}
