// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Streams that are kept in tests/golden: today's encoder must write exactly these bytes, and today's decoder read them.
// With TESSERA_WRITE_GOLDEN=1 in the environment the test writes them anew: only where the format is meant to change.
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <tessera/neuzip.hpp>
#include <tessera/testing/generators.hpp>

#include "algorithm/weights/weight_samples.hpp"
#include "support/catch.hpp"
#include "support/codecs.hpp"

using namespace tessera;
using tessera_test::weight_array;

namespace {

/// Weights made of integers alone: exponents that halve in frequency downwards, every 61st pattern any one.
template <class T>
weight_array<T> golden_weights(std::int64_t count) {
  using bits_type = typename scalar_traits<T>::bits_type;
  weight_array<T> weights(count);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t const random = testing::hash(2024, static_cast<std::uint64_t>(i));
    auto const below = static_cast<std::uint32_t>(count_trailing_zeros((random >> 32) | 0x1000));
    std::uint32_t const center = exponent_split<T>::largest_exponent / 2 + 1;
    std::uint32_t const exponent = below < center ? center - below : 0;
    auto const residual = static_cast<std::uint32_t>(random) & ((1u << exponent_split<T>::residual_bits) - 1);
    std::uint32_t const bits =
        i % 61 == 60 ? static_cast<std::uint32_t>(random >> 7) : exponent_split<T>::join(exponent, residual);
    weights[i] = from_bits<T>(static_cast<bits_type>(bits));
  }
  return weights;
}

std::string path_of(std::string const& name) {
  return TESSERA_TEST_DATA "/../golden/" + name + ".tsra";
}

std::vector<std::byte> read_golden(std::string const& name) {
  std::ifstream file(path_of(name), std::ios::binary);
  std::string const text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

template <class Codec>
void check_golden(std::string const& name, std::int64_t count, weight_stream_options options) {
  using type = typename Codec::value_type;
  INFO(name);
  cpu const exec{.threads = 1};
  weight_array<type> const weights = golden_weights<type>(count);
  auto const stream = Codec::encode(exec, weights.view(), options);
  if (tessera_test::environment_asks_for("TESSERA_WRITE_GOLDEN")) {
    std::ofstream(path_of(name), std::ios::binary)
        .write(reinterpret_cast<char const*>(stream.data()), static_cast<std::streamsize>(stream.bytes()));
  }
  std::vector<std::byte> const golden = read_golden(name);
  REQUIRE_FALSE(golden.empty());
  CHECK((golden == std::vector<std::byte>(stream.begin(), stream.end())));
  buffer<std::byte> kept(std::ssize(golden));
  std::memcpy(kept.data(), golden.data(), golden.size());
  weight_array<type> decoded(count);
  Codec::decode(exec, kept.view(), decoded.view());
  if constexpr (Codec::is_lossless) {
    CHECK((decoded == weights));
  } else {
    CHECK(inspect_weight_stream(kept.data(), kept.size()).spec().mantissa_kept == Codec::mantissa_type::kept_bits);
  }
}

}  // namespace

TEST_CASE("streams of the rANS coder that were kept are written and read as ever", "[host]") {
  check_golden<neuzip>("bf16_rans", 2100, {.block = 1024});
  check_golden<neuzip_of<float16>>("fp16_rans", 2100, {.block = 2048, .checksums = true});
  check_golden<neuzip_of<float>>("fp32_rans", 1100, {.block = 1024, .checksums = true});
  check_golden<neuzip_of<float8_e4m3>>("e4m3_rans", 4100, {.block = 4096});
  check_golden<neuzip_of<float8_e5m2>>("e5m2_rans", 4100, {.block = 8192});
}

TEST_CASE("streams of fixed codes that were kept are written and read as ever", "[host]") {
  check_golden<neuzip_fixed<bfloat16>>("bf16_fixed", 2100, {.block = 1024, .checksums = true});
  check_golden<neuzip_fixed<float16>>("fp16_fixed", 2100, {.block = 2048});
  check_golden<neuzip_fixed<float>>("fp32_fixed", 1100, {.block = 8192});
  check_golden<neuzip_fixed<float8_e4m3>>("e4m3_fixed", 4100, {.block = 1024});
  check_golden<neuzip_fixed<float8_e5m2>>("e5m2_fixed", 4100, {.block = 4096, .checksums = true});
}

TEST_CASE("streams of whole exponents that were kept are written and read as ever", "[host]") {
  check_golden<compressed_weights<exponent_split<bfloat16>, tans_coder, keep_mantissa<7>>>(
      "bf16_tans", 2100, {.block = 1024, .checksums = true});
  check_golden<compressed_weights<exponent_split<float>, tans_coder, keep_mantissa<23>>>("fp32_tans", 1100, {});
}

TEST_CASE("lossy and stored streams that were kept are written and read as ever", "[host]") {
  check_golden<neuzip_lossy<0>>("bf16_lossy_0", 2100, {.block = 1024, .checksums = true, .normalizer_block = 64});
  check_golden<neuzip_lossy<3>>("bf16_lossy_3", 2100, {.normalizer_block = 512});
  check_golden<neuzip_lossy<7, float16>>("fp16_lossy_7", 1100, {.block = 1024});
  check_golden<neuzip>("bf16_stored", 77, {});
}
