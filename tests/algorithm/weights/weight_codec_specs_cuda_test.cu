// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// On the device, too, a codec refuses the streams of all others before anything is enqueued.
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/neuzip.hpp>

#include "algorithm/weights/device_weights.cuh"

using namespace tessera;
using tessera_test::device_bytes;
using tessera_test::device_space;
using tessera_test::device_weights;
using tessera_test::encode_on_host;
using tessera_test::weight_array;
using tessera_test::weight_kind;

namespace {

using lossless = std::tuple<neuzip_of<bfloat16>, neuzip_of<float16>, neuzip_of<float>, neuzip_of<float8_e4m3>,
                            neuzip_of<float8_e5m2>, neuzip_fixed<bfloat16>, neuzip_fixed<float16>, neuzip_fixed<float>,
                            neuzip_fixed<float8_e4m3>, neuzip_fixed<float8_e5m2>>;
constexpr std::size_t codec_count = std::tuple_size_v<lossless>;
constexpr std::int64_t count = 6000;

struct known_stream {
  weight_stream_spec spec;
  device_bytes bytes;
  bool is_whole;  ///< whether there is a whole stream; else there is only its spec
};

template <class Codec>
known_stream make_stream() {
  weight_array<typename Codec::value_type> const weights(weight_kind::gauss, 3, count);
  std::vector<std::byte> const stream = encode_on_host<Codec>(weights, {});
  known_stream made{Codec::spec(count), device_bytes(std::ssize(stream), 0, 0), true};
  made.bytes.upload(stream.data(), made.bytes.size());
  return made;
}
template <class Codec>
known_stream make_spec() {
  return {Codec::spec(count), device_bytes(Codec::spec(count).smallest_bytes(), 0, 0), false};
}
template <std::size_t... Which>
std::vector<known_stream> make_streams(std::index_sequence<Which...>) {
  std::vector<known_stream> streams;
  (streams.push_back(make_stream<std::tuple_element_t<Which, lossless>>()), ...);
  streams.push_back(make_stream<neuzip_lossy<0>>());
  streams.push_back(make_stream<neuzip_lossy<3>>());
  streams.push_back(make_spec<neuzip_lossy<1>>());
  streams.push_back(make_spec<neuzip_lossy<3, float16>>());
  streams.push_back(make_spec<neuzip_lossy<3, float>>());
  streams.push_back(make_spec<neuzip_lossy<7, float>>());
  return streams;
}

template <class Call>
bool refuses(std::string const& name, Call&& call) {
  try {
    call();
  } catch (value_error const& problem) {
    return std::string(problem.what()).find(name) == 0;
  }
  return false;
}

template <class Codec>
void check_streams(std::vector<known_stream> const& streams, std::size_t own) {
  using type = typename Codec::value_type;
  cuda const exec;
  device_weights<type> const weights(count);
  device_space const decode_space(Codec::plan_decode(exec, Codec::spec(count)));
  device_space const encode_space(Codec::plan_encode(exec, Codec::spec(count)));
  device_bytes const room(Codec::largest_bytes(Codec::spec(count)));
  device_bytes const size(8);
  array_view<std::int64_t> const result(reinterpret_cast<std::int64_t*>(size.data()), 1);
  for (std::size_t which = 0; which < streams.size(); ++which) {
    known_stream const& stream = streams[which];
    INFO("codec " << own << ", stream " << which);
    auto const whole = [&] { Codec::decode(exec, stream.bytes.view(), weights.view()); };
    auto const planned = [&] {
      Codec::decode(exec, stream.spec, stream.bytes.view(), weights.view(), decode_space);
      exec.wait();
    };
    if (which == own) {
      whole();
      planned();
      continue;
    }
    CHECK((!stream.is_whole || refuses("compressed_weights.decode: the stream", whole)));
    CHECK(refuses("compressed_weights.decode: the stream", planned));
    CHECK(refuses("compressed_weights.encode: the stream",
                  [&] { Codec::encode(exec, stream.spec, weights.view(), room.view(), result, encode_space); }));
  }
}
template <std::size_t... Which>
void check_all(std::vector<known_stream> const& streams, std::index_sequence<Which...>) {
  (check_streams<std::tuple_element_t<Which, lossless>>(streams, Which), ...);
}

}  // namespace

TEST_CASE("on the device a codec takes its own streams and none of the fifteen others'", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_all(make_streams(std::make_index_sequence<codec_count>()), std::make_index_sequence<codec_count>());
}

TEST_CASE("a stream that was inspected decodes on the device, and no other in its place", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  for (std::int64_t weights_of_each : {std::int64_t{60'000}, std::int64_t{100}}) {
    weight_array<bfloat16> const first(weight_kind::gauss, 1, weights_of_each);
    weight_array<bfloat16> const second(weight_kind::gauss, 2, weights_of_each);
    std::vector<std::byte> const stream = encode_on_host<neuzip>(first, {.checksums = true});
    std::vector<std::byte> const other = encode_on_host<neuzip>(second, {.checksums = true});
    auto const found = inspect_weight_stream(stream.data(), std::ssize(stream));
    device_bytes room(max(std::ssize(stream), std::ssize(other)), 0, 0);
    device_weights<bfloat16> const decoded(weights_of_each);
    device_space const space(neuzip::plan_decode(exec, found));
    room.upload(stream.data(), std::ssize(stream));
    neuzip::decode(exec, found, room.view(), decoded.view(), space);
    exec.wait();
    CHECK((decoded.download() == first));
    room.upload(other.data(), std::ssize(other));
    neuzip::decode(exec, found, room.view(), decoded.view(), space);
    CHECK_THROWS_WITH(exec.wait(), tessera_test::contains("the header contradicts itself"));
    CHECK((decoded.download() == weight_array<bfloat16>(weights_of_each)));
  }
}
