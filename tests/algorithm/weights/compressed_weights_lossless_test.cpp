// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lossless codecs: every pattern of every type comes back, whatever the kind of weights, their number and the block.
#include <cstdint>
#include <cstring>

#include <tessera/neuzip.hpp>

#include "algorithm/weights/weight_samples.hpp"
#include "support/catch.hpp"
#include "support/codecs.hpp"
#include "support/weight_checks.hpp"

using namespace tessera;
using tessera_test::all_patterns;
using tessera_test::check_kinds_and_counts;
using tessera_test::check_round_trip;
using tessera_test::patterns_of_fp32;
using tessera_test::weight_array;
using tessera_test::weight_kind;

namespace {

cpu const& executor() {
  static cpu const exec{.threads = 2};
  return exec;
}

template <class Codec>
void check_sizes() {
  using type = typename Codec::value_type;
  check_kinds_and_counts<Codec>(executor(), {0, 1, 7, 255, 256, 257, 2047, 2048, 2049, 8191, 8192, 8193, 30'001});
  check_round_trip<Codec>(executor(), weight_array<type>(weight_kind::gauss, 5, 100'001));
  check_round_trip<Codec>(executor(), weight_array<type>(weight_kind::mixture, 6, 100'001), {.checksums = true});
}

template <class T>
void check_both_coders() {
  check_sizes<neuzip_of<T>>();
  check_sizes<neuzip_fixed<T>>();
}

template <class T>
void check_patterns(weight_array<T> const& weights) {
  check_round_trip<neuzip_of<T>>(executor(), weights);
  check_round_trip<neuzip_fixed<T>>(executor(), weights);
}

}  // namespace

TEST_CASE("bf16 weights of every kind and number come back bit for bit", "[host][threads]") {
  check_both_coders<bfloat16>();
}
TEST_CASE("fp16 weights of every kind and number come back bit for bit", "[host][threads]") {
  check_both_coders<float16>();
}
TEST_CASE("fp32 weights of every kind and number come back bit for bit", "[host][threads]") {
  check_both_coders<float>();
}
TEST_CASE("e4m3 weights of every kind and number come back bit for bit", "[host][threads]") {
  check_both_coders<float8_e4m3>();
}
TEST_CASE("e5m2 weights of every kind and number come back bit for bit", "[host][threads]") {
  check_both_coders<float8_e5m2>();
}

TEST_CASE("every pattern of every type comes back", "[host][threads]") {
  check_patterns(all_patterns<bfloat16>());
  check_patterns(all_patterns<float16>());
  check_patterns(all_patterns<float8_e4m3>(64));
  check_patterns(all_patterns<float8_e5m2>(64));
  check_patterns(patterns_of_fp32(120'000));
}

TEST_CASE("tensors too small to gain are stored with a checksum, larger ones are coded", "[host][threads]") {
  CHECK(neuzip::spec(2047).coder == weight_coder::stored);
  CHECK(neuzip::spec(2048).coder == weight_coder::rans_pairs);
  CHECK(neuzip_of<float>::spec(1023).coder == weight_coder::stored);
  CHECK(neuzip_fixed<float>::spec(1024).coder == weight_coder::fixed_codes);
  CHECK(neuzip_of<float8_e4m3>::spec(4095).coder == weight_coder::stored);
  weight_array<bfloat16> const weights(weight_kind::gauss, 1, 100);
  CHECK(neuzip::encode(executor(), weights.view()).size() == 64 + 200);
}
