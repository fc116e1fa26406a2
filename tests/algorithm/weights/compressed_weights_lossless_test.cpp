// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lossless codecs: every pattern of every type comes back, whatever the kind of weights, their number and the block.
#include <cstdint>
#include <cstring>

#include <tessera/neuzip.hpp>

#include "algorithm/weights/weight_samples.hpp"
#include "support/catch.hpp"
#include "support/codecs.hpp"

using namespace tessera;
using tessera_test::weight_array;
using tessera_test::weight_kind;
using tessera_test::weight_kinds;

namespace {

cpu const& executor() {
  static cpu const exec{.threads = 2};
  return exec;
}

template <class Codec>
void check_round_trip(weight_array<typename Codec::value_type> const& weights, weight_stream_options options = {}) {
  auto const stream = Codec::encode(executor(), weights.view(), options);
  REQUIRE(stream.size() <= Codec::largest_bytes(Codec::spec(weights.count(), options)));
  weight_array<typename Codec::value_type> decoded(weights.count());
  decoded.fill_with_rubbish();
  Codec::decode(executor(), stream.view(), decoded.view());
  REQUIRE(decoded == weights);
}

template <class Codec>
void check_kinds_and_counts() {
  using type = typename Codec::value_type;
  std::uint64_t seed = 1;
  for (weight_kind kind : weight_kinds) {
    for (std::int64_t count : {0, 1, 7, 255, 256, 257, 2047, 2048, 2049, 8191, 8192, 8193, 30'001}) {
      weight_stream_options const options{.block = 1024 << (seed % 4), .checksums = seed % 3 == 0};
      ++seed;
      INFO(scalar_traits<type>::name() << ", kind " << static_cast<int>(kind) << ", count " << count << ", blocks of "
                                       << options.block << ", checksums " << options.checksums);
      check_round_trip<Codec>(weight_array<type>(kind, seed, count), options);
    }
  }
  check_round_trip<Codec>(weight_array<type>(weight_kind::gauss, 5, 100'001));
  check_round_trip<Codec>(weight_array<type>(weight_kind::mixture, 6, 100'001), {.checksums = true});
}

/// All patterns of a type with up to sixteen bits, `times` times.
template <class T>
weight_array<T> all_patterns(std::int64_t times) {
  constexpr std::int64_t patterns = std::int64_t{1} << scalar_traits<T>::bits;
  weight_array<T> weights(times * patterns);
  for (std::int64_t i = 0; i < weights.count(); ++i) {
    weights[i] = from_bits<T>(static_cast<typename scalar_traits<T>::bits_type>(i % patterns));
  }
  return weights;
}

weight_array<float> patterns_of_fp32() {
  weight_array<float> weights(120'000);
  for (std::int64_t i = 0; i < weights.count(); ++i) {
    auto bits = testing::uniform_bits{}.value(9, static_cast<std::uint64_t>(i));
    bits |= i % 5 == 0 ? 0x7f800000u : 0;    // infinities and NaNs with every payload
    bits &= i % 7 == 0 ? 0x807fffffu : ~0u;  // subnormals
    bits &= i % 11 == 0 ? 0xff800000u : ~0u;
    weights[i] = from_bits<float>(bits);
  }
  return weights;
}

template <class T>
void check_both_coders() {
  check_kinds_and_counts<neuzip_of<T>>();
  check_kinds_and_counts<neuzip_fixed<T>>();
}

}  // namespace

TEST_CASE("bf16 weights of every kind and number come back bit for bit", "[host]") {
  check_both_coders<bfloat16>();
}
TEST_CASE("fp16 weights of every kind and number come back bit for bit", "[host]") {
  check_both_coders<float16>();
}
TEST_CASE("fp32 weights of every kind and number come back bit for bit", "[host]") {
  check_both_coders<float>();
}
TEST_CASE("e4m3 weights of every kind and number come back bit for bit", "[host]") {
  check_both_coders<float8_e4m3>();
}
TEST_CASE("e5m2 weights of every kind and number come back bit for bit", "[host]") {
  check_both_coders<float8_e5m2>();
}

TEST_CASE("every pattern of every type comes back", "[host]") {
  check_round_trip<neuzip>(all_patterns<bfloat16>(1));
  check_round_trip<neuzip_fixed<bfloat16>>(all_patterns<bfloat16>(1));
  check_round_trip<neuzip_of<float16>>(all_patterns<float16>(1));
  check_round_trip<neuzip_fixed<float16>>(all_patterns<float16>(1));
  check_round_trip<neuzip_of<float8_e4m3>>(all_patterns<float8_e4m3>(64));
  check_round_trip<neuzip_fixed<float8_e4m3>>(all_patterns<float8_e4m3>(64));
  check_round_trip<neuzip_of<float8_e5m2>>(all_patterns<float8_e5m2>(64));
  check_round_trip<neuzip_fixed<float8_e5m2>>(all_patterns<float8_e5m2>(64));
  check_round_trip<neuzip_of<float>>(patterns_of_fp32());
  check_round_trip<neuzip_fixed<float>>(patterns_of_fp32());
}

TEST_CASE("tensors too small to gain are stored with a checksum, larger ones are coded", "[host]") {
  CHECK(neuzip::spec(2047).coder == weight_coder::stored);
  CHECK(neuzip::spec(2048).coder == weight_coder::rans_pairs);
  CHECK(neuzip_of<float>::spec(1023).coder == weight_coder::stored);
  CHECK(neuzip_fixed<float>::spec(1024).coder == weight_coder::fixed_codes);
  CHECK(neuzip_of<float8_e4m3>::spec(4095).coder == weight_coder::stored);
  weight_array<bfloat16> const weights(weight_kind::gauss, 1, 100);
  CHECK(neuzip::encode(executor(), weights.view()).size() == 64 + 200);
}
