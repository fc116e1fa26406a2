// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/program/offloaded_cache/value_record.hpp>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

constexpr std::int64_t chunk = 8;

struct rows_of {
  bfloat16 const* data;
  std::int64_t channels;
  bfloat16 operator()(std::int64_t token, std::int64_t channel) const { return data[token * channels + channel]; }
};

std::vector<bfloat16> samples(std::int64_t channels) {
  std::vector<bfloat16> values(static_cast<std::size_t>(chunk * channels));
  testing::fill(testing::student_t{}, 3, values.data(), values.size());
  return values;
}

template <class Codec>
std::vector<float> round_trip(std::vector<bfloat16> const& values, std::int64_t channels) {
  using record = value_record<Codec, bfloat16>;
  std::int64_t const bytes = record::bytes(chunk, channels);
  CHECK(bytes % 64 == 0);
  std::vector<std::byte> memory(static_cast<std::size_t>(bytes + 64), std::byte{0x5a});
  for (std::int64_t piece = record::pieces(chunk, channels); piece-- > 0;) {
    record::put(rows_of{values.data(), channels}, piece, chunk, channels, memory.data());
  }
  for (auto at = static_cast<std::size_t>(bytes); at < memory.size(); ++at) {
    CHECK(memory[at] == std::byte{0x5a});
  }
  std::vector<float> again;
  for (std::int64_t i = 0; i < chunk * channels; ++i) {
    again.push_back(load(record::get(memory.data(), chunk, channels, i / channels, i % channels)));
  }
  return again;
}

/// The values of each group, coded and decoded by itself.
template <class Q>
std::vector<float> expected(std::vector<bfloat16> const& values, std::int64_t channels, std::int64_t neighbours) {
  Q const quantizer;
  std::vector<float> result(values.size());
  for (std::size_t row = 0; row < static_cast<std::size_t>(chunk); ++row) {
    auto const n = static_cast<std::size_t>(channels);
    auto const step = static_cast<std::size_t>(neighbours);
    for (std::size_t first = 0; first < n; first += step) {
      auto range = quantizer.range().identity();
      for (std::size_t c = first; c < first + step && c < n; ++c) {
        quantizer.range().push(range, load(values[row * n + c]));
      }
      auto const params = quantizer.fit(range);
      for (std::size_t c = first; c < first + step && c < n; ++c) {
        float const value = quantizer.decode(quantizer.encode(load(values[row * n + c]), params), params);
        result[row * n + c] = load(store<bfloat16>(value));
      }
    }
  }
  return result;
}

}  // namespace

TEST_CASE("values that are kept as they are come back as they were", "[host]") {
  auto const values = samples(128);
  auto const again = round_trip<exact_values>(values, 128);
  for (std::size_t i = 0; i < values.size(); ++i) {
    CHECK(again[i] == load(values[i]));
  }
}

TEST_CASE("coded values come back as their quantizer makes them", "[host]") {
  for (std::int64_t const channels : {64, 128, 80}) {
    CAPTURE(channels);
    auto const values = samples(channels);
    CHECK(round_trip<float8_quantizer<float8_e4m3>>(values, channels) ==
          expected<float8_quantizer<float8_e4m3>>(values, channels, channels));
    CHECK(round_trip<symmetric_quantizer<4, 64>>(values, channels) ==
          expected<symmetric_quantizer<4, 64>>(values, channels, 64));
    CHECK(round_trip<asymmetric_quantizer<4, 32>>(values, channels) ==
          expected<asymmetric_quantizer<4, 32>>(values, channels, 32));
    CHECK(round_trip<symmetric_quantizer<8, 64>>(values, channels) ==
          expected<symmetric_quantizer<8, 64>>(values, channels, 64));
  }
}

TEST_CASE("records are as small as their codes and scales", "[host]") {
  CHECK(value_record<exact_values, bfloat16>::bytes(8, 128) == 2048);
  CHECK(value_record<float8_quantizer<float8_e4m3>, bfloat16>::bytes(8, 128) == 1024 + 64);
  CHECK(value_record<symmetric_quantizer<4, 64>, bfloat16>::bytes(8, 128) == 512 + 64);
  CHECK(value_record<asymmetric_quantizer<4, 64>, bfloat16>::bytes(8, 128) == 512 + 128);
}
