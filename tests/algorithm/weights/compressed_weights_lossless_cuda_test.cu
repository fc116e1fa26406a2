// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The device writes the same bytes as the host, and decodes them to the weights.
#include <tessera/neuzip.hpp>

#include "algorithm/weights/device_weights.cuh"

using tessera_test::device_bytes;
using tessera_test::device_space;
using tessera_test::device_weights;
using tessera_test::encode_on_device;
using tessera_test::encode_on_host;
using tessera_test::weight_array;
using tessera_test::weight_kind;

namespace {

template <class Codec>
void check_on_device(tessera::cuda const& exec, weight_kind kind, std::int64_t count,
                     tessera::weight_stream_options options, int shift) {
  using type = typename Codec::value_type;
  INFO(tessera::scalar_traits<type>::name()
       << ", coder " << static_cast<int>(Codec::spec(1 << 20).coder) << ", kind " << static_cast<int>(kind)
       << ", count " << count << ", blocks of " << options.block << ", checksums " << options.checksums << ", shift "
       << shift);
  weight_array<type> const weights(kind, static_cast<std::uint64_t>(count), count);
  std::vector<std::byte> const expected = encode_on_host<Codec>(weights, options);
  REQUIRE((encode_on_device<Codec>(exec, weights, options, shift) == expected));
  tessera::weight_stream_spec const spec = Codec::spec(count, options);
  device_bytes stream(static_cast<std::int64_t>(expected.size()), 0, 0);
  stream.upload(expected.data(), stream.size());
  device_weights<type> decoded(count, shift);
  Codec::decode(exec, spec, stream.view(), decoded.view(), device_space(Codec::plan_decode(exec, spec)));
  exec.wait();
  REQUIRE(decoded.guards_are_intact());
  REQUIRE((decoded.download() == weights));
}

template <class Codec>
void check_kinds_and_counts_on_device() {
  tessera::cuda const exec;
  int turn = 0;
  for (weight_kind kind : tessera_test::weight_kinds) {
    for (std::int64_t count : {1, 7, 255, 256, 257, 2047, 2048, 2049, 8191, 8192, 8193, 100'001}) {
      tessera::weight_stream_options const options{.block = 8192 >> (turn % 4), .checksums = turn % 5 == 0};
      check_on_device<Codec>(exec, kind, count, options, turn % 3 == 2 ? 1 + turn % 7 : 0);
      ++turn;
    }
  }
  // Several tiles of blocks, of which the histogram counts some.
  check_on_device<Codec>(exec, weight_kind::mixture, 1'100'001, {.block = 1024}, 0);
  check_on_device<Codec>(exec, weight_kind::a_few_escapes, 1'100'000, {.block = 8192, .checksums = true}, 0);
}

}  // namespace

TEMPLATE_TEST_CASE("weights of every kind and number have the same streams on the device as on the host", "[cuda]",
                   tessera::bfloat16, tessera::float16, float, tessera::float8_e4m3, tessera::float8_e5m2) {
  TESSERA_NEEDS_CUDA();
  check_kinds_and_counts_on_device<tessera::neuzip_of<TestType>>();
  check_kinds_and_counts_on_device<tessera::neuzip_fixed<TestType>>();
}
