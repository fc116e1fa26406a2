// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A codec takes its own streams and refuses those of all others, in whichever way they are passed to it.
#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/algorithm/weights/weight_codec_specs.hpp>
#include <tessera/neuzip.hpp>

#include "algorithm/weights/own_coders.hpp"
#include "algorithm/weights/weight_samples.hpp"
#include "support/catch.hpp"
#include "support/codecs.hpp"

using namespace tessera;
using tessera_test::contains;
using tessera_test::weight_array;
using tessera_test::weight_kind;

namespace {

template <class Coder>
using whole = compressed_weights<exponent_split<bfloat16>, Coder, keep_mantissa<7>>;
using codecs = std::tuple<neuzip_of<bfloat16>, neuzip_of<float16>, neuzip_of<float>, neuzip_of<float8_e4m3>,
                          neuzip_of<float8_e5m2>, neuzip_fixed<bfloat16>, neuzip_fixed<float16>, neuzip_fixed<float>,
                          neuzip_fixed<float8_e4m3>, neuzip_fixed<float8_e5m2>, neuzip_lossy<0>, neuzip_lossy<1>,
                          neuzip_lossy<3>, neuzip_lossy<3, float16>, neuzip_lossy<3, float>, neuzip_lossy<7, float>,
                          whole<tans_coder>, whole<tessera_test::six_bit_coder>>;
constexpr std::size_t codec_count = std::tuple_size_v<codecs>;
constexpr std::int64_t count = 6000;

cpu const& executor() {
  static cpu const exec{.threads = 1};
  return exec;
}

struct known_stream {
  weight_stream_spec spec;
  buffer<std::byte> bytes;
};

template <class Codec>
known_stream make_stream() {
  weight_array<typename Codec::value_type> const weights(weight_kind::gauss, 3, count);
  return {Codec::spec(count), Codec::encode(executor(), weights.view())};
}
template <std::size_t... Which>
std::vector<known_stream> make_streams(std::index_sequence<Which...>) {
  std::vector<known_stream> streams;
  (streams.push_back(make_stream<std::tuple_element_t<Which, codecs>>()), ...);
  return streams;
}

/// Whether a call throws `Error` with a message that contains the name.
template <class Error, class Call>
bool refuses(std::string const& name, Call&& call) {
  try {
    call();
  } catch (Error const& problem) {
    return std::string(problem.what()).find(name) == 0;
  }
  return false;
}

/// Passes a stream and its spec to a codec in all possible ways. `is_own`: the codec must take them.
template <class Codec>
void check_stream(known_stream const& stream, bool is_own) {
  using type = typename Codec::value_type;
  auto const& exec = executor();
  std::string const decoding = "compressed_weights.decode: the stream";
  std::string const encoding = "compressed_weights.encode: the stream";
  auto const found = inspect_weight_stream(stream.bytes.data(), stream.bytes.size());
  weight_array<type> weights(count);
  weight_stream_spec const own = Codec::spec(count);
  buffer<std::byte> memory(Codec::plan_decode(exec, own).bytes() + Codec::plan_encode(exec, own).bytes());
  buffer<std::byte> room(Codec::largest_bytes(own) + stream.bytes.size());
  std::int64_t size = 0;
  workspace const decode_space(Codec::plan_decode(exec, own), memory);
  workspace const encode_space(Codec::plan_encode(exec, own), memory);
  auto const whole = [&] { Codec::decode(exec, stream.bytes.view(), weights.view()); };
  auto const planned = [&](auto const& spec) {
    return [&] { Codec::decode(exec, spec, stream.bytes.view(), weights.view(), decode_space); };
  };
  auto const block = [&] { Codec::decode(exec, found, stream.bytes.view(), 0, 1, weights.view(), decode_space); };
  auto const encode = [&] { Codec::encode(exec, stream.spec, weights.view(), room.view(), {&size, 1}, encode_space); };
  if (is_own) {
    whole();
    planned(found)();
    planned(stream.spec)();
    encode();
    exec.wait();
    return;
  }
  CHECK(refuses<value_error>(decoding, whole));
  CHECK(refuses<value_error>(decoding, planned(found)));
  CHECK(refuses<value_error>(decoding, planned(stream.spec)));
  CHECK(refuses<value_error>(decoding, block));
  CHECK(refuses<value_error>(decoding, [&] { static_cast<void>(Codec::plan_decode(exec, found)); }));
  CHECK(refuses<value_error>(encoding, encode));
  CHECK(refuses<value_error>(encoding, [&] { static_cast<void>(Codec::plan_encode(exec, stream.spec)); }));
  // With the codec's own spec: refused as too short at first sight, or else by its header.
  bool const is_refused =
      refuses<shape_error>(decoding, planned(own)) ||
      refuses<corrupt_data>("compressed_weights.decode: the header contradicts itself", [&] { exec.wait(); });
  CHECK(is_refused);
}

template <class Codec>
void check_streams(std::vector<known_stream> const& streams, std::size_t own) {
  for (std::size_t which = 0; which < streams.size(); ++which) {
    INFO("codec " << own << ", stream " << which);
    check_stream<Codec>(streams[which], which == own);
  }
}
template <std::size_t... Which>
void check_all(std::vector<known_stream> const& streams, std::index_sequence<Which...>) {
  (check_streams<std::tuple_element_t<Which, codecs>>(streams, Which), ...);
}

/// The message for a spec of the codec after a change.
template <class Codec, class Change>
std::string refusal_of(Change&& change) {
  weight_stream_spec spec = Codec::spec(count);
  change(spec);
  try {
    Codec::check_spec("load", spec);
  } catch (error const& problem) {
    return problem.what();
  }
  return "taken";
}

}  // namespace

TEST_CASE("of all 324 pairs of a codec and a stream only those that belong together are taken", "[host]") {
  check_all(make_streams(std::make_index_sequence<codec_count>()), std::make_index_sequence<codec_count>());
}

TEST_CASE("a spec that no codec makes is refused with both values", "[host]") {
  using spec_type = weight_stream_spec;
  CHECK(refusal_of<neuzip>([](spec_type&) {}) == "taken");
  CHECK(refusal_of<neuzip>([](spec_type& s) { s.coder = weight_coder::stored; }) == "taken");
  CHECK(refusal_of<neuzip>([](spec_type& s) { s.type = weight_type::fp32; }) ==
        "load: the stream holds elements of type 2 but the codec has type 0");
  CHECK(refusal_of<neuzip>([](spec_type& s) { s.coder = weight_coder::fixed_codes; }) ==
        "load: the stream has coder 2 but the codec has 1");
  CHECK(refusal_of<whole<tans_coder>>([](spec_type& s) { s.coder = weight_coder::rans_pairs; }) ==
        "load: the stream has coder 1 but the codec has 3");
  CHECK(refusal_of<whole<tans_coder>>([](spec_type& s) { s.codebook_units = 7; }) ==
        "load: the stream's codebook has 7 times 64 bytes but the codec's has 8");
  CHECK(refusal_of<neuzip>([](spec_type& s) { s.codebook_units = 8; }) ==
        "load: the stream's codebook has 8 times 64 bytes but the codec's has 0");
  CHECK(refusal_of<neuzip_lossy<3>>([](spec_type& s) { s.coder = weight_coder::stored; }) ==
        "load: the stream has coder 0 but the codec has 1");
  CHECK(refusal_of<neuzip>([](spec_type& s) { s.mantissa_kept = 3; }) ==
        "load: the stream keeps 3 mantissa bits but the codec 7");
  CHECK(refusal_of<neuzip>([](spec_type& s) { s.log2_block = 20; }) ==
        "load: blocks have 2^20 weights but must have 2^10 to 2^13");
  CHECK_THAT(refusal_of<neuzip>([](spec_type& s) { s.log2_block = -1; }), contains("blocks have 2^-1 weights"));
  CHECK_THAT(refusal_of<neuzip>([](spec_type& s) { s.log2_normalizer_block = 6; }),
             contains("normalizers belong to 2^6 weights but the codec has none"));
  CHECK(refusal_of<neuzip_lossy<3>>([](spec_type& s) { s.log2_normalizer_block = 11; }) ==
        "load: normalizers belong to 2^11 weights but must to 2^5 to 2^10");
  CHECK(refusal_of<neuzip>([](spec_type& s) { s.count = -1; }) ==
        "load: the number of weights is -1 but must be at least 0 and at most 34359738368");
}

TEST_CASE("a stream that was inspected decodes, and no other in its place", "[host]") {
  static_assert(!std::is_default_constructible_v<inspected_weight_stream>);
  static_assert(!std::is_constructible_v<inspected_weight_stream, weight_stream_spec>);
  static_assert(!std::is_aggregate_v<inspected_weight_stream>);
  cpu const exec{.threads = 1};
  for (std::int64_t weights_of_each : {std::int64_t{6000}, std::int64_t{100}}) {
    weight_array<bfloat16> const first(weight_kind::gauss, 1, weights_of_each);
    weight_array<bfloat16> const second(weight_kind::gauss, 2, weights_of_each);
    buffer<std::byte> const stream = neuzip::encode(exec, first.view());
    buffer<std::byte> other(max(stream.size(), neuzip::largest_bytes(neuzip::spec(weights_of_each))));
    exec.clear(other);
    buffer<std::byte> const encoded = neuzip::encode(exec, second.view());
    std::memcpy(other.data(), encoded.data(), encoded.bytes());
    auto const found = inspect_weight_stream(stream.data(), stream.size());
    workspace_plan const plan = neuzip::plan_decode(exec, found);
    buffer<std::byte> memory(plan.bytes());
    weight_array<bfloat16> decoded(weights_of_each);
    neuzip::decode(exec, found, stream.view(), decoded.view(), workspace(plan, memory));
    exec.wait();
    CHECK(decoded == first);
    neuzip::decode(exec, found, other.view(), decoded.view(), workspace(plan, memory));
    CHECK_THROWS_WITH(exec.wait(), contains("the header contradicts itself"));
    CHECK(decoded == weight_array<bfloat16>(weights_of_each));
    auto const shorter = array_view<std::byte const>(stream.data(), stream.size() - 16);
    CHECK_THROWS_WITH(neuzip::decode(exec, found, shorter, decoded.view(), workspace(plan, memory)),
                      "compressed_weights.decode: the stream has " + std::to_string(stream.size() - 16) +
                          " bytes but needs at least " + std::to_string(stream.size()));
  }
}
