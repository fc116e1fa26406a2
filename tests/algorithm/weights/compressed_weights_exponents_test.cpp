// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Codecs whose coder has a symbol for every exponent, the library's and a user's: what comes back, what it takes, what
// is refused.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/algorithm/weights/compressed_linear.hpp>
#include <tessera/algorithm/weights/compressed_weights.hpp>
#include <tessera/algorithm/weights/parameter_store.hpp>
#include <tessera/entropy/tans_coder.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/testing/adversary.hpp>

#include "algorithm/weights/own_coders.hpp"
#include "algorithm/weights/weight_samples.hpp"
#include "support/catch.hpp"
#include "support/codecs.hpp"
#include "support/message_of.hpp"
#include "support/weight_checks.hpp"

using namespace tessera;
using tessera_test::all_patterns;
using tessera_test::bytes_of;
using tessera_test::check_adversary;
using tessera_test::check_kinds_and_counts;
using tessera_test::check_round_trip;
using tessera_test::contains;
using tessera_test::four_bit_coder;
using tessera_test::message_of;
using tessera_test::patterns_of_fp32;
using tessera_test::six_bit_coder;
using tessera_test::weight_array;
using tessera_test::weight_kind;

namespace {

template <class T, class Coder = tans_coder>
using lossless = compressed_weights<exponent_split<T>, Coder, keep_mantissa<scalar_traits<T>::mantissa_bits>>;
template <int Kept>
using lossy = compressed_weights<exponent_split<bfloat16>, tans_coder, keep_mantissa<Kept>>;

std::vector<std::int64_t> const counts{0, 1, 7, 1023, 1024, 1025, 2047, 2048, 2049, 4097, 8191, 8192, 8193};

cpu const& executor() {
  static cpu const exec{.threads = 1};
  return exec;
}

template <class Codec>
double bits_a_weight(weight_array<typename Codec::value_type> const& weights) {
  auto const stream = Codec::encode(executor(), weights.view());
  return 8.0 * static_cast<double>(stream.size()) / static_cast<double>(weights.count());
}

/// Weights whose exponents are evenly spread over `octaves` octaves below 1.
template <class T>
weight_array<T> spread_over(int octaves, std::int64_t count) {
  weight_array<T> weights(count);
  for (std::int64_t i = 0; i < count; ++i) {
    auto const random = static_cast<double>(testing::hash(11, static_cast<std::uint64_t>(i)) >> 11) * 0x1p-53;
    weights[i] = store<T>(static_cast<float>(std::exp2(-octaves * random)));
  }
  return weights;
}

/// Second moments as Adam keeps them: running means of squares of gradients of many scales.
weight_array<bfloat16> second_moments(std::int64_t count) {
  weight_array<bfloat16> weights(count);
  for (std::int64_t i = 0; i < count; ++i) {
    auto const index = static_cast<std::uint64_t>(i);
    double const scale = std::exp2(3.0 * testing::sample<float>(testing::gauss{}, 7, index / 64));
    double mean = 0;
    for (std::uint64_t step = 0; step < 3; ++step) {
      double const gradient = 1e-4 * scale * testing::sample<float>(testing::gauss{}, 8 + step, index);
      mean = 0.5 * mean + 0.5 * gradient * gradient;
    }
    weights[i] = store<bfloat16>(static_cast<float>(mean));
  }
  return weights;
}

/// The index entries of a stream.
std::vector<weight_block_index> entries_of(buffer<std::byte> const& stream) {
  weight_stream_spec const spec = inspect_weight_stream(stream.data(), stream.size()).spec();
  std::vector<weight_block_index> entries(static_cast<std::size_t>(spec.block_count()));
  std::memcpy(entries.data(), stream.data() + spec.index_offset(), entries.size() * sizeof(weight_block_index));
  return entries;
}

}  // namespace

TEST_CASE("whole exponents of bf16 weights of every kind and number come back bit for bit", "[host]") {
  check_kinds_and_counts<lossless<bfloat16>>(executor(), counts);
  check_round_trip<lossless<bfloat16>>(executor(), all_patterns<bfloat16>());
}
TEST_CASE("whole exponents of fp16 weights of every kind and number come back bit for bit", "[host]") {
  check_kinds_and_counts<lossless<float16>>(executor(), counts);
  check_round_trip<lossless<float16>>(executor(), all_patterns<float16>());
}
TEST_CASE("whole exponents of fp32 weights of every kind and number come back bit for bit", "[host]") {
  check_kinds_and_counts<lossless<float>>(executor(), counts);
  check_round_trip<lossless<float>>(executor(), patterns_of_fp32(50'000));
}

TEST_CASE("a user's own coder codes weights of every kind and number, and its number is in the stream", "[host]") {
  check_kinds_and_counts<lossless<bfloat16, six_bit_coder>>(executor(), counts);
  check_kinds_and_counts<lossless<float8_e4m3, four_bit_coder>>(executor(), counts);
  weight_array<bfloat16> const weights(weight_kind::a_few_escapes, 3, 10'000);
  auto const stream = lossless<bfloat16, six_bit_coder>::encode(executor(), weights.view());
  weight_stream_spec const spec = inspect_weight_stream(stream.data(), stream.size()).spec();
  CHECK(static_cast<int>(spec.coder) == 200);
  CHECK(spec.codebook_size() == 64);
  for (weight_block_index const& entry : entries_of(stream)) {
    CHECK(entry.words != weight_block_index::raw);
    CHECK(entry.escapes > 0);  // of exponents that are not among the 64
  }
  weight_array<float8_e4m3> const small(weight_kind::gauss, 3, 10'000);
  auto const nibbles = lossless<float8_e4m3, four_bit_coder>::encode(executor(), small.view());
  CHECK(inspect_weight_stream(nibbles.data(), nibbles.size()).spec().codebook_size() == 0);
}

TEST_CASE("wide distributions take fewer bits by whole exponents than by windows of fifteen", "[host][slow]") {
  for (int octaves : {20, 40, 100}) {
    CAPTURE(octaves);
    auto const weights = spread_over<bfloat16>(octaves, 200'000);
    double const whole = bits_a_weight<lossless<bfloat16>>(weights);
    CHECK(whole < 8 + std::log2(octaves + 1) + 0.2);
    CHECK(whole < bits_a_weight<neuzip>(weights) - 1);
  }
  auto const floats = spread_over<float>(40, 100'000);
  CHECK(bits_a_weight<lossless<float>>(floats) < 24 + std::log2(41) + 0.2);
  CHECK(bits_a_weight<lossless<float>>(floats) < bits_a_weight<neuzip_of<float>>(floats) - 1);
  auto const moments = second_moments(200'000);
  CHECK(bits_a_weight<lossless<bfloat16>>(moments) < bits_a_weight<neuzip>(moments) - 1);
  check_round_trip<lossless<bfloat16>>(executor(), moments);
}

TEST_CASE("weights that hardly differ take next to nothing beyond sign and mantissa", "[host]") {
  weight_array<bfloat16> weights(200'000);
  for (std::int64_t i = 0; i < weights.count(); ++i) {
    bool const is_zero = testing::hash(3, static_cast<std::uint64_t>(i)) % 50 != 0;
    weights[i] = is_zero ? bfloat16{} : testing::sample<bfloat16>(testing::gauss{}, 5, static_cast<std::uint64_t>(i));
  }
  double const bits = bits_a_weight<lossless<bfloat16>>(weights);
  CHECK(bits < 8.4);
  CHECK(bits < bits_a_weight<neuzip>(weights) + 0.01);
}

TEST_CASE("trained weights take no more than a hundredth of a bit more than in pairs", "[host]") {
  weight_array<bfloat16> const weights(weight_kind::gauss, 3, 500'000);
  CHECK(bits_a_weight<lossless<bfloat16>>(weights) < bits_a_weight<neuzip>(weights) + 0.01);
}

TEST_CASE("kept mantissa bits and normalizers go with whole exponents, too", "[host]") {
  for (weight_kind kind : {weight_kind::gauss, weight_kind::mixture, weight_kind::all_nan, weight_kind::sparse}) {
    for (std::int64_t count : {0, 1, 7, 1023, 1024, 1025, 9000}) {
      INFO("kind " << static_cast<int>(kind) << ", count " << count);
      weight_stream_options const options{.block = 1024, .normalizer_block = 64};
      weight_array<bfloat16> const weights(kind, 3, count);
      weight_array<bfloat16> whole(count);
      weight_array<bfloat16> pairs(count);
      lossy<0>::decode(executor(), lossy<0>::encode(executor(), weights.view(), options).view(), whole.view());
      neuzip_lossy<0>::decode(executor(), neuzip_lossy<0>::encode(executor(), weights.view(), options).view(),
                              pairs.view());
      REQUIRE(whole == pairs);
      lossy<3>::decode(executor(), lossy<3>::encode(executor(), weights.view()).view(), whole.view());
      neuzip_lossy<3>::decode(executor(), neuzip_lossy<3>::encode(executor(), weights.view()).view(), pairs.view());
      REQUIRE(whole == pairs);
    }
  }
}

TEST_CASE("threads do not change a byte of a stream of whole exponents", "[host][threads]") {
  weight_array<bfloat16> const weights(weight_kind::mixture, 3, 50'001);
  using codec = lossless<bfloat16>;
  auto const expected = bytes_of(codec::encode(cpu{.threads = 1}, weights.view(), {.block = 2048, .checksums = true}));
  for (int threads : {2, 5}) {
    auto const stream = codec::encode(cpu{.threads = threads}, weights.view(), {.block = 2048, .checksums = true});
    REQUIRE(bytes_of(stream) == expected);
  }
}

TEST_CASE("coding of whole exponents keeps the rules for programs", "[host]") {
  check_adversary<lossless<bfloat16>>(weight_kind::a_few_escapes, 3001, {.block = 1024, .checksums = true});
  check_adversary<lossless<float>>(weight_kind::mixture, 4097, {.block = 2048});
  check_adversary<lossless<bfloat16>>(weight_kind::gauss, 100, {});
  check_adversary<lossy<0>>(weight_kind::mixture, 2100, {.block = 1024, .normalizer_block = 64});
  check_adversary<lossless<bfloat16, six_bit_coder>>(weight_kind::a_few_escapes, 2100, {.block = 1024});
}

TEST_CASE("exponents that a sampled histogram did not see are escapes, and come back", "[host][slow]") {
  std::int64_t const count = 1100 * 1024;  // of 1100 blocks every second one is counted
  weight_array<bfloat16> weights(weight_kind::gauss, 3, count);
  for (std::int64_t i = 1024; i < count; i += 2 * 1024) {
    weights[i + 5] = from_bits<bfloat16>(0x7f81);  // a NaN
    weights[i + 77] = store<bfloat16>(1e30F);
  }
  auto const stream = lossless<bfloat16>::encode(executor(), weights.view(), {.block = 1024});
  std::int64_t escapes = 0;
  for (weight_block_index const& entry : entries_of(stream)) {
    REQUIRE(entry.words != weight_block_index::raw);
    escapes += entry.escapes;
  }
  CHECK(escapes >= 2 * 550);
  weight_array<bfloat16> decoded(count);
  lossless<bfloat16>::decode(executor(), stream.view(), decoded.view());
  CHECK(decoded == weights);
}

TEST_CASE("a codec refuses the stream of another coder, and names both", "[host]") {
  weight_array<bfloat16> const weights(weight_kind::gauss, 3, 6000);
  weight_array<bfloat16> decoded(6000);
  auto const pairs = neuzip::encode(executor(), weights.view());
  auto const whole = lossless<bfloat16>::encode(executor(), weights.view());
  auto const own = lossless<bfloat16, six_bit_coder>::encode(executor(), weights.view());
  CHECK(message_of([&] { neuzip::decode(executor(), whole.view(), decoded.view()); }) ==
        "compressed_weights.decode: the stream has coder 3 but the codec has 1");
  CHECK(message_of([&] { lossless<bfloat16>::decode(executor(), pairs.view(), decoded.view()); }) ==
        "compressed_weights.decode: the stream has coder 1 but the codec has 3");
  CHECK(message_of([&] { lossless<bfloat16>::decode(executor(), own.view(), decoded.view()); }) ==
        "compressed_weights.decode: the stream has coder 200 but the codec has 3");
  CHECK(message_of([&] { lossless<bfloat16, six_bit_coder>::decode(executor(), whole.view(), decoded.view()); }) ==
        "compressed_weights.decode: the stream has coder 3 but the codec has 200");
}

TEST_CASE("an exponent that the type does not have makes a block zeros", "[host]") {
  // The slots of the highest exponent become those of 200, which changes nothing else; fp16's exponents end at 31.
  using codec = lossless<float16>;
  weight_array<float16> const weights(weight_kind::gauss, 3, 4096);
  auto stream = codec::encode(executor(), weights.view(), {.block = 1024});
  weight_stream_spec const spec = codec::spec(4096, {.block = 1024});
  auto* const bytes = reinterpret_cast<std::uint8_t*>(stream.data());
  std::uint8_t* const codebook = bytes + spec.codebook_offset();
  auto* const header = reinterpret_cast<weight_stream_header*>(bytes);
  std::size_t highest = 31;
  while (codebook[2 * highest] == 0 && codebook[2 * highest + 1] == 0) {
    --highest;
  }
  std::swap(codebook[2 * highest], codebook[2 * 200]);
  std::swap(codebook[2 * highest + 1], codebook[2 * 200 + 1]);
  header->content_checksum = crc32c(codebook, static_cast<std::size_t>(spec.codebook_size()));
  header->header_checksum = checksum_of(*header);
  weight_array<float16> decoded(4096);
  decoded.fill_with_rubbish();
  CHECK_THAT(message_of([&] { codec::decode(executor(), stream.view(), decoded.view()); }),
             contains("encoded bytes are corrupt"));
  for (std::int64_t i = 0; i < 4096; i += 1024) {
    bool has_highest = false;
    int zeros = 0;
    for (std::int64_t k = i; k < i + 1024; ++k) {
      has_highest = has_highest || exponent_split<float16>::exponent(to_bits(weights[k])) == highest;
      zeros += to_bits(decoded[k]) == 0 ? 1 : 0;
    }
    CHECK((zeros == 1024) == has_highest);
  }
}

TEST_CASE("layers and stores of parameters take a codec of whole exponents", "[host]") {
  using codec = lossless<bfloat16>;
  std::int64_t const rows = 20;
  std::int64_t const columns = 333;
  weight_array<bfloat16> const weights(weight_kind::gauss, 3, rows * columns);
  weight_array<bfloat16> const inputs(weight_kind::gauss, 4, 3 * columns);
  auto const forward = [&](auto codec_of_layer) {
    using layer_codec = typename decltype(codec_of_layer)::type;
    using linear = compressed_linear<layer_codec>;
    auto const stream = layer_codec::encode(executor(), weights.view(), {.block = 1024});
    auto const spec = layer_codec::spec(rows * columns, {.block = 1024});
    auto const plan = linear::plan_forward(executor(), spec);
    buffer<std::byte> memory(executor(), plan.bytes());
    std::vector<float> outputs(3 * rows);
    linear::forward(executor(), {spec, stream}, matrix_view<bfloat16 const>(inputs.data(), {3, columns}),
                    matrix_view<float>(outputs.data(), {3, rows}), workspace(plan, memory));
    executor().wait();
    return outputs;
  };
  CHECK(forward(std::type_identity<codec>()) == forward(std::type_identity<neuzip>()));

  parameter_store<codec, cpu> store(executor());
  auto const id = store.add("weights", weights.view());
  auto const lease = store.acquire(id);
  CHECK(std::memcmp(lease.weights().data, weights.data(), weights.size() * 2) == 0);
}
