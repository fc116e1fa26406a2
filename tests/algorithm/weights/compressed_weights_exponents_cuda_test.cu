// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Codecs whose coder has a symbol for every exponent run their portable programs on the device: the bytes, the weights
// and the verdicts are those of the host.
#include <cstring>
#include <iterator>
#include <vector>

#include <tessera/entropy/tans_coder.hpp>
#include <tessera/neuzip.hpp>

#include "algorithm/weights/device_weights.cuh"
#include "algorithm/weights/own_coders.hpp"
#include "support/stream_differences.cuh"

using namespace tessera;
using tessera_test::device_bytes;
using tessera_test::device_space;
using tessera_test::device_weights;
using tessera_test::encode_on_device;
using tessera_test::encode_on_host;
using tessera_test::weight_array;
using tessera_test::weight_kind;

namespace {

template <class T, int Kept, class Coder = tans_coder>
using whole = compressed_weights<exponent_split<T>, Coder, keep_mantissa<Kept>>;

/// The fast programs are for pairs of codes; those of whole exponents need room for every block.
using wide_needs = placement_needs<cuda, bfloat16, keep_mantissa<7>, tans_coder>;
using pair_needs = placement_needs<cuda, bfloat16, keep_mantissa<7>>;

template <class Codec>
void check_codec(weight_kind kind, std::int64_t count, weight_stream_options options) {
  using type = typename Codec::value_type;
  INFO(scalar_traits<type>::name() << " keeps " << Codec::mantissa_type::kept_bits << ", kind "
                                   << static_cast<int>(kind) << ", count " << count << ", blocks of " << options.block);
  cuda const exec;
  weight_array<type> const weights(kind, 9, count);
  std::vector<std::byte> const expected = encode_on_host<Codec>(weights, options);
  REQUIRE((encode_on_device<Codec>(exec, weights, options, 1) == expected));
  buffer<std::byte> host_stream(std::ssize(expected));
  std::memcpy(host_stream.data(), expected.data(), expected.size());
  weight_array<type> on_host(count);
  Codec::decode(cpu{}, host_stream.view(), on_host.view());
  device_bytes stream(std::ssize(expected), 0, 0);
  stream.upload(expected.data(), stream.size());
  device_weights<type> decoded(count);
  weight_stream_spec const spec = Codec::spec(count, options);
  Codec::decode(exec, spec, stream.view(), decoded.view(), device_space(Codec::decode_plan(exec, spec)));
  exec.wait();
  REQUIRE((decoded.download() == on_host));
  REQUIRE(decoded.guards_are_intact());
}

template <class Codec>
void check_kinds() {
  for (weight_kind kind : {weight_kind::gauss, weight_kind::mixture, weight_kind::all_nan, weight_kind::random_bits,
                           weight_kind::a_few_escapes, weight_kind::two_clusters}) {
    for (std::int64_t count : {0, 1, 7, 8191, 8192, 8193, 20'001}) {
      check_codec<Codec>(kind, count, {});
      check_codec<Codec>(kind, count, {.block = 2048, .checksums = true});
    }
  }
}

template <class Codec>
void check_broken_streams(weight_stream_options options) {
  cuda const exec;
  tessera_test::stream_comparison<Codec> streams(exec, {.count = 2100, .options = options, .any = 100});
  REQUIRE(streams.takes_sound_stream());
  auto const found = streams.run(0, 300);
  CHECK(found.streams == 300);
  CHECK(found.refused > 75);
  CHECK(found.differences == 0);
}

}  // namespace

TEST_CASE("whole exponents of bf16 weights have the same streams and values on the device as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_kinds<whole<bfloat16, 7>>();
  check_kinds<whole<bfloat16, 0>>();
}

TEST_CASE("whole exponents of fp32 weights have the same streams and values on the device as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_kinds<whole<float, 23>>();
}

TEST_CASE("a user's coder makes the same streams and values on the device as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_kinds<whole<bfloat16, 7, tessera_test::six_bit_coder>>();
}

TEST_CASE("broken streams of whole exponents are treated alike by device and host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_broken_streams<whole<bfloat16, 7>>({.block = 1024});
  check_broken_streams<whole<bfloat16, 7>>({.block = 1024, .checksums = true});
}

TEST_CASE("lossless pairs of codes are placed as they are coded, whole exponents afterwards", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  weight_stream_spec const spec = neuzip::spec(100'000);
  CHECK(pair_needs::slots(spec) == 0);
  CHECK(pair_needs::tile_sums(spec) > 0);
  CHECK(wide_needs::slots(whole<bfloat16, 7>::spec(100'000)) > 0);
}
