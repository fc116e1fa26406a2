// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lossy codecs run their portable programs on the device: the bytes and the weights are those of the host.
#include <cstring>
#include <iterator>
#include <vector>

#include <tessera/neuzip.hpp>

#include "algorithm/weights/device_weights.cuh"

using namespace tessera;
using tessera_test::device_bytes;
using tessera_test::device_space;
using tessera_test::device_weights;
using tessera_test::encode_on_device;
using tessera_test::encode_on_host;
using tessera_test::weight_array;
using tessera_test::weight_kind;

namespace {

template <class Codec>
void check_lossy(weight_kind kind, std::int64_t count, weight_stream_options options) {
  using type = typename Codec::value_type;
  INFO(scalar_traits<type>::name() << " keeps " << Codec::mantissa_type::kept_bits << ", kind "
                                   << static_cast<int>(kind) << ", count " << count << ", normalizers "
                                   << options.normalizer_block);
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
  Codec::decode(exec, spec, stream.view(), decoded.view(), device_space(Codec::plan_decode(exec, spec)));
  exec.wait();
  REQUIRE((decoded.download() == on_host));
  REQUIRE(decoded.guards_are_intact());
}

template <class Codec>
void check_kinds() {
  for (weight_kind kind : {weight_kind::gauss, weight_kind::mixture, weight_kind::all_nan, weight_kind::random_bits}) {
    check_lossy<Codec>(kind, 20'001, {});
    check_lossy<Codec>(kind, 20'001, {.block = 2048, .checksums = true, .normalizer_block = 512});
    check_lossy<Codec>(kind, 33, {.normalizer_block = 32});
  }
}

}  // namespace

TEST_CASE("bf16 weights without mantissas have the same streams and values on the device as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_kinds<neuzip_lossy<0>>();
}

TEST_CASE("bf16 weights with three mantissa bits have the same streams and values on the device as on the host",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_kinds<neuzip_lossy<3>>();
}

TEST_CASE("fp32 weights with seven mantissa bits have the same streams and values on the device as on the host",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_kinds<neuzip_lossy<7, float>>();
}
