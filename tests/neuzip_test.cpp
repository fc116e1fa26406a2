// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The codecs by name: what they cost on weights like those of models, and what the lossy ones do to them.
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/neuzip.hpp>

#include "algorithm/weights/weight_samples.hpp"
#include "quantize/kept_reference.hpp"
#include "support/catch.hpp"
#include "support/codecs.hpp"

#if __has_include(<nlohmann/json.hpp>)
#include "../examples/support/input_file.hpp"
#include "../examples/support/safetensors.hpp"
#endif

using namespace tessera;
using tessera_test::format;
using tessera_test::weight_array;
using tessera_test::weight_kind;

namespace {

static_assert(std::is_same_v<neuzip, neuzip_of<bfloat16>>);
static_assert(neuzip::is_lossless && neuzip_of<float>::is_lossless && neuzip_fixed<float8_e4m3>::is_lossless);
static_assert(!neuzip_lossy<3>::is_lossless && !neuzip_lossy<7, float16>::is_lossless);
static_assert(std::is_same_v<neuzip_fixed<float16>::coder_type, fixed_coder>);

/// A composition of the user's own, with another rounding.
template <int K, mantissa_rounding Rounding>
using rounded = compressed_weights<exponent_split<bfloat16>, rans_coder<12>, keep_mantissa<K, Rounding>>;

cpu const& executor() {
  static cpu const exec{.threads = 2};
  return exec;
}

/// The entropy of bf16 exponents, and with sign and mantissa the least bits of a weight.
struct exponent_statistics {
  std::vector<double> counts = std::vector<double>(256);
  double all = 0;

  void add(weight_array<bfloat16> const& weights) {
    for (std::int64_t i = 0; i < weights.count(); ++i) {
      counts[exponent_split<bfloat16>::exponent(to_bits(weights[i]))] += 1;
    }
    all += static_cast<double>(weights.count());
  }
  [[nodiscard]] double bound() const {
    double bits = exponent_split<bfloat16>::residual_bits;
    for (double n : counts) {
      bits -= n > 0 ? n / all * std::log2(n / all) : 0;
    }
    return bits;
  }
};

double entropy_bound(weight_array<bfloat16> const& weights) {
  exponent_statistics statistics;
  statistics.add(weights);
  return statistics.bound();
}

/// The expected normalizer of the block with weight i.
template <class T>
std::uint32_t normalizer_of(weight_array<T> const& weights, std::int64_t i, int block) {
  if (block == 0) {
    return 0;
  }
  std::int64_t const first = i / block * block;
  long double largest = 0;
  for (std::int64_t j = first; j < std::min(first + block, weights.count()); ++j) {
    std::uint32_t const bits = to_bits(weights[j]);
    if (!format<T>::is_special(bits)) {
      largest = std::fmax(largest, std::fabs(format<T>::value_of(bits)));
    }
  }
  if (largest < std::ldexp(1.0L, format<T>::smallest_normal)) {
    return 0;
  }
  long double const mantissa = std::ldexp(largest, -std::ilogb(largest)) - 1;
  return static_cast<std::uint32_t>(std::fmin(std::floor(mantissa * 256 + 0.5L), 255.0L));
}

/// The number of decoded weights that differ from exact arithmetic.
template <class T, int K>
int wrongly_kept(weight_kind kind, int normalizer_block, bool checksums) {
  using codec = neuzip_lossy<K, T>;
  weight_array<T> const weights(kind, 5, 12'345);
  auto const stream =
      codec::encode(executor(), weights.view(), {.checksums = checksums, .normalizer_block = normalizer_block});
  weight_array<T> decoded(weights.count());
  codec::decode(executor(), stream.view(), decoded.view());
  int wrong = 0;
  std::uint32_t normalizer = 0;
  for (std::int64_t i = 0; i < weights.count(); ++i) {
    if (normalizer_block > 0 && i % normalizer_block == 0) {
      normalizer = normalizer_of(weights, i, normalizer_block);
    }
    std::uint32_t const before = to_bits(weights[i]);
    std::uint32_t const after = to_bits(decoded[i]);
    if (format<T>::is_negative(before) != format<T>::is_negative(after)) {
      ++wrong;
    } else if (format<T>::is_special(before)) {
      wrong += format<T>::is_nan(before) ? !format<T>::is_nan(after) : before != after;
    } else {
      long double const kept = tessera_test::kept_magnitude<T, K, mantissa_rounding::half_away>(before, normalizer, 0);
      std::uint32_t const magnitude = after & ((1u << (scalar_traits<T>::bits - 1)) - 1);
      wrong += magnitude != tessera_test::nearest_bits<T>(kept * (256 + normalizer) / 256);
    }
  }
  return wrong;
}

template <class T, int K>
void check_lossy() {
  INFO(scalar_traits<T>::name() << " keeps " << K);
  CHECK(wrongly_kept<T, K>(weight_kind::gauss, 0, false) == 0);
  CHECK(wrongly_kept<T, K>(weight_kind::gauss, 512, true) == 0);
  CHECK(wrongly_kept<T, K>(weight_kind::random_bits, 32, false) == 0);
  CHECK(wrongly_kept<T, K>(weight_kind::mixture, 1024, false) == 0);
  CHECK(wrongly_kept<T, K>(weight_kind::all_nan, 64, false) == 0);
}

/// Encodes with a seed, through the interface that allocates nothing.
template <class Codec>
std::vector<bfloat16> through(weight_array<bfloat16> const& weights, std::uint64_t seed) {
  weight_stream_spec const spec = Codec::spec(weights.count());
  workspace_plan const encode_plan = Codec::plan_encode(executor(), spec);
  workspace_plan const decode_plan = Codec::plan_decode(executor(), spec);
  buffer<std::byte> memory(std::max(encode_plan.bytes(), decode_plan.bytes()));
  buffer<std::byte> stream(Codec::largest_bytes(spec));
  std::int64_t bytes = 0;
  Codec::encode(executor(), spec, weights.view(), stream, {&bytes, 1}, workspace(encode_plan, memory), seed);
  std::vector<bfloat16> decoded(weights.size());
  Codec::decode(executor(), spec, {stream.data(), bytes}, decoded, workspace(decode_plan, memory));
  executor().wait();
  return decoded;
}

}  // namespace

TEST_CASE("normal bf16 weights take at most 10.70 bits each", "[host][threads][slow]") {
  weight_array<bfloat16> const weights(weight_kind::gauss, 1, 1 << 22);
  auto const stream = neuzip::encode(executor(), weights.view());
  double const bits = 8.0 * static_cast<double>(stream.size()) / static_cast<double>(weights.count());
  CHECK(bits <= 10.70);
  CHECK(bits >= entropy_bound(weights));  // fewer would contradict the entropy
}

TEST_CASE("fixed codes take twelve bits for a bf16 weight and little more", "[host][threads]") {
  weight_array<bfloat16> const weights(weight_kind::gauss, 1, 1 << 18);
  auto const stream = neuzip_fixed<bfloat16>::encode(executor(), weights.view());
  CHECK(8.0 * static_cast<double>(stream.size()) / static_cast<double>(weights.count()) < 12.03);
}

TEST_CASE("weights that cannot be compressed grow by a thousandth at most", "[host][threads]") {
  weight_array<bfloat16> const weights(weight_kind::random_bits, 1, 1 << 18);
  auto const stream = neuzip::encode(executor(), weights.view());
  CHECK(8.0 * static_cast<double>(stream.size()) / static_cast<double>(weights.count()) < 16.03);
}

TEST_CASE("zeros and repeated values take next to nothing beyond sign and mantissa", "[host][threads]") {
  for (weight_kind kind : {weight_kind::all_equal, weight_kind::sparse}) {
    weight_array<bfloat16> const weights(kind, 1, 1 << 18);
    auto const stream = neuzip::encode(executor(), weights.view());
    double const bits = 8.0 * static_cast<double>(stream.size()) / static_cast<double>(weights.count());
    CHECK(bits <= entropy_bound(weights) + 0.25);
  }
}

TEST_CASE("lossy bf16 weights are the exactly rounded ones, with and without normalizers", "[host][threads]") {
  check_lossy<bfloat16, 0>();
  check_lossy<bfloat16, 1>();
  check_lossy<bfloat16, 3>();
}

TEST_CASE("lossy fp16 and fp32 weights are the exactly rounded ones, with and without normalizers", "[host][threads]") {
  check_lossy<float16, 1>();
  check_lossy<float16, 7>();
  check_lossy<float, 0>();
  check_lossy<float, 3>();
}

TEST_CASE("what is lossy costs what it keeps and the exponents", "[host][threads]") {
  weight_array<bfloat16> const weights(weight_kind::gauss, 1, 1 << 18);
  auto const bits = [&](auto codec, weight_stream_options options) {
    auto const stream = decltype(codec)::encode(executor(), weights.view(), options);
    return 8.0 * static_cast<double>(stream.size()) / static_cast<double>(weights.count());
  };
  CHECK(bits(neuzip_lossy<3>{}, {}) < 6.75);
  CHECK(bits(neuzip_lossy<1>{}, {}) < 4.75);
  CHECK(bits(neuzip_lossy<0>{}, {}) < 3.75);
  CHECK(bits(neuzip_lossy<0>{}, {.normalizer_block = 512}) < 3.8);
}

TEST_CASE("stochastic rounding repeats with its seed, differs with another, and is right on average",
          "[host][threads]") {
  using codec = rounded<1, mantissa_rounding::stochastic>;
  weight_array<bfloat16> weights(40'000);
  for (std::int64_t i = 0; i < weights.count(); ++i) {
    weights[i].bits = 0x3f9a;  // 1.203125: between 1 and 1.5
  }
  std::vector<bfloat16> const first = through<codec>(weights, 1);
  std::vector<bfloat16> const again = through<codec>(weights, 1);
  std::vector<bfloat16> const other = through<codec>(weights, 2);
  int same_as_again = 0;
  int same_as_other = 0;
  double mean = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    same_as_again += first[i].bits == again[i].bits ? 1 : 0;
    same_as_other += first[i].bits == other[i].bits ? 1 : 0;
    mean += static_cast<double>(load(first[i])) / 40'000;
  }
  CHECK(same_as_again == 40'000);
  CHECK(same_as_other < 30'000);
  CHECK(std::fabs(mean - 1.203125) < 5 * 0.25 / 200);
}

TEST_CASE("rounding toward zero never makes a weight larger", "[host][threads]") {
  weight_array<bfloat16> const weights(weight_kind::gauss, 4, 5000);
  std::vector<bfloat16> const kept = through<rounded<3, mantissa_rounding::toward_zero>>(weights, 0);
  for (std::int64_t i = 0; i < weights.count(); ++i) {
    REQUIRE((kept[static_cast<std::size_t>(i)].bits & 0x7fff) <= (weights[i].bits & 0x7fff));
  }
}

#if __has_include(<nlohmann/json.hpp>)
TEST_CASE("the weights of a real model stay within 1.5 percent of the entropy of their exponents", "[host][threads]") {
  tessera_examples::input_file const file(TESSERA_TEST_DATA "/minilm_bf16.safetensors");
  tessera_examples::safetensors_reader const model(file, file.path());
  exponent_statistics of_all;
  double spent = 0;
  for (auto const& tensor : model.tensors()) {
    if (tensor.dtype != "BF16") {
      continue;
    }
    weight_array<bfloat16> weights(tensor.elements());
    model.data(tensor).read(
        0, std::as_writable_bytes(std::span(weights.data(), static_cast<std::size_t>(weights.count()))));
    auto const stream = neuzip::encode(executor(), weights.view());
    weight_array<bfloat16> decoded(weights.count());
    neuzip::decode(executor(), stream.view(), decoded.view());
    REQUIRE(decoded == weights);
    of_all.add(weights);
    spent += 8.0 * static_cast<double>(stream.size());
  }
  REQUIRE(of_all.all > 500'000);
  CHECK(of_all.bound() == Approx(10.68).margin(0.005));
  CHECK(spent / of_all.all <= 1.015 * of_all.bound());
}
#endif
