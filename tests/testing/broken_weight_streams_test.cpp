// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/neuzip.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/broken_weight_streams.hpp>

#include "algorithm/weights/weight_samples.hpp"
#include "support/catch.hpp"
#include "support/codecs.hpp"

using namespace tessera;
using tessera_test::weight_array;
using tessera_test::weight_kind;

namespace {

using stream_bytes = std::vector<std::byte>;

cpu const& executor() {
  static cpu const exec{.threads = 1};
  return exec;
}

template <class Codec>
stream_bytes stream_of(std::int64_t count, weight_stream_options options) {
  weight_array<typename Codec::value_type> const weights(weight_kind::a_few_escapes, 8, count);
  auto const stream = Codec::encode(executor(), weights.view(), options);
  return {stream.begin(), stream.end()};
}

/// What became of a stream: the weights, and what was said of them.
template <class T>
struct outcome {
  weight_array<T> weights;
  std::string message;
  friend bool operator==(outcome const&, outcome const&) = default;
};

/// Decodes as one who knows the layout, with the instructions of a level.
template <class Codec, class Executor>
outcome<typename Codec::value_type> decode(Executor const& exec, stream_bytes const& bytes,
                                           weight_stream_spec const& spec, char const* level) {
  ::setenv("TESSERA_SIMD", level, 1);
  buffer<std::byte> stream(std::ssize(bytes));
  std::memcpy(stream.data(), bytes.data(), bytes.size());
  outcome<typename Codec::value_type> result{weight_array<typename Codec::value_type>(spec.count), ""};
  result.weights.fill_with_rubbish();
  workspace_plan const plan = Codec::plan_decode(exec, spec);
  buffer<std::byte> memory(plan.bytes());
  try {
    Codec::decode(exec, spec, stream.view(), result.weights.view(), workspace(plan, memory));
    exec.wait();
  } catch (error const& problem) {
    std::string const message = problem.what();  // "cpu.wait: ..." says who waited
    result.message = message.substr(message.find(':'));
  }
  ::unsetenv("TESSERA_SIMD");
  return result;
}

struct tally {
  int changed = 0;
  int refused = 0;
  int differing = 0;
};

template <class Codec>
tally decode_broken(std::int64_t count, weight_stream_options options, int number) {
  stream_bytes const sound = stream_of<Codec>(count, options);
  weight_stream_spec const spec = Codec::spec(count, options);
  tally result;
  for (int seed = 0; seed < number; ++seed) {
    stream_bytes broken = sound;
    testing::break_weight_stream(broken, static_cast<std::uint64_t>(seed));
    auto const portable = decode<Codec>(executor(), broken, spec, "scalar");
    result.changed += broken == sound ? 0 : 1;
    result.refused += portable.message.empty() ? 0 : 1;
    bool is_same = decode<Codec>(executor(), broken, spec, "avx2") == portable;
    is_same = is_same && decode<Codec>(executor(), broken, spec, "") == portable;
    if (seed % 10 == 0) {  // lanes in another order, as on a GPU
      testing::adversary const unkind{.seed = static_cast<std::uint64_t>(seed)};
      is_same = is_same && decode<Codec>(unkind, broken, spec, "") == portable;
    }
    result.differing += is_same ? 0 : 1;
  }
  return result;
}

template <class Codec>
void check_broken(std::int64_t count, weight_stream_options options) {
  constexpr int number = 1200;
  tally const found = decode_broken<Codec>(count, options, number);
  CHECK(found.changed > number * 9 / 10);
  CHECK(found.refused > number / 4);
  CHECK(found.refused < number * 19 / 20);
  CHECK(found.differing == 0);
}

}  // namespace

TEST_CASE("a stream is broken the same way for the same seed", "[host]") {
  stream_bytes const sound = stream_of<neuzip>(4300, {.block = 1024});
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    stream_bytes first = sound;
    stream_bytes second = sound;
    testing::break_weight_stream(first, seed);
    testing::break_weight_stream(second, seed);
    CHECK(first == second);
  }
}

TEST_CASE("whatever instructions decode a broken stream, weights and messages are the same", "[host][long]") {
  check_broken<neuzip>(4300, {.block = 1024});
  check_broken<neuzip>(4096, {.block = 2048, .checksums = true});
  check_broken<neuzip>(1000, {});
  check_broken<neuzip_of<float16>>(8200, {.block = 4096});
  check_broken<neuzip_of<float>>(2100, {.block = 1024, .checksums = true});
  check_broken<neuzip_of<float8_e5m2>>(8300, {.block = 2048});
  check_broken<neuzip_fixed<bfloat16>>(4300, {.block = 1024});
  check_broken<neuzip_fixed<float8_e4m3>>(8300, {.block = 1024, .checksums = true});
  check_broken<neuzip_lossy<0>>(4300, {.block = 1024, .normalizer_block = 64});
  check_broken<neuzip_lossy<3>>(4300, {.block = 1024});
  check_broken<compressed_weights<exponent_split<bfloat16>, tans_coder, keep_mantissa<7>>>(4300, {.block = 1024});
}

TEST_CASE("where checksums are left as they were, no other weights come out of a broken stream without a word",
          "[host]") {
  weight_stream_options const options{.block = 1024, .checksums = true};
  weight_array<bfloat16> const weights(weight_kind::a_few_escapes, 8, 4300);
  stream_bytes const sound = stream_of<neuzip>(4300, options);
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    stream_bytes broken = sound;
    testing::break_weight_stream(broken, seed, testing::checksum_repair::never);
    auto const found = decode<neuzip>(executor(), broken, neuzip::spec(4300, options), "");
    refused += found.message.empty() ? 0 : 1;
    REQUIRE((found.weights == weights || !found.message.empty()));
  }
  CHECK(refused > 2500);
}

TEST_CASE("a stream that is not valid cannot be broken any more", "[host]") {
  stream_bytes none(100);
  CHECK_THROWS_AS(testing::break_weight_stream(none, 1), corrupt_data);
}
