// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Codecs whose coder has a symbol for every exponent run their portable programs on the device: the bytes, the weights
// and the verdicts are those of the host.
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include <tessera/entropy/tans_coder.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/testing/broken_weight_streams.hpp>

#include "algorithm/weights/device_weights.cuh"
#include "algorithm/weights/own_coders.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::check_same_as_host;
using tessera_test::device_bytes;
using tessera_test::device_space;
using tessera_test::device_weights;
using tessera_test::encode_on_host;
using tessera_test::message_of;
using tessera_test::weight_array;
using tessera_test::weight_kind;

namespace {

template <class T, int Kept, class Coder = tans_coder>
using whole = compressed_weights<exponent_split<T>, Coder, keep_mantissa<Kept>>;

/// The fast programs are for pairs of codes; those of whole exponents need room for every block.
using wide_needs = placement_needs<cuda, bfloat16, keep_mantissa<7>, tans_coder>;
using pair_needs = placement_needs<cuda, bfloat16, keep_mantissa<7>>;

template <class Codec>
void check_kinds() {
  for (weight_kind kind : {weight_kind::gauss, weight_kind::mixture, weight_kind::all_nan, weight_kind::random_bits,
                           weight_kind::a_few_escapes, weight_kind::two_clusters}) {
    for (std::int64_t count : {0, 1, 7, 8191, 8192, 8193, 20'001}) {
      check_same_as_host<Codec>(kind, count, {});
      check_same_as_host<Codec>(kind, count, {.block = 2048, .checksums = true});
    }
  }
}

/// What became of a stream: the weights, and what was said of them, by whichever executor waited.
struct outcome {
  std::vector<std::byte> weights;
  std::string message;
  friend bool operator==(outcome const&, outcome const&) = default;
};

/// What a call throws, without the name of the executor that waited, which stands before a colon.
template <class Wait>
std::string said_by(Wait const& wait) {
  std::string const message = message_of(wait);
  return message.empty() ? message : message.substr(message.find(':'));
}

/// Decodes broken streams whose layout is known, by both executors.
template <class Codec>
class broken_streams {
 public:
  using type = typename Codec::value_type;
  static constexpr std::int64_t count = 2100;

  explicit broken_streams(weight_stream_options options)
      : spec_(Codec::spec(count, options)),
        sound_(encode_on_host<Codec>(weight_array<type>(weight_kind::a_few_escapes, 6, count), options)),
        decoded_(count),
        space_(Codec::plan_decode(exec_, spec_)) {}

  /// The stream that the encoder wrote, or a broken version of it.
  [[nodiscard]] std::vector<std::byte> stream(std::uint64_t seed) const {
    std::vector<std::byte> bytes = sound_;
    if (seed > 0) {
      testing::break_weight_stream(bytes, seed);
    }
    return bytes;
  }
  outcome on_device(std::vector<std::byte> const& bytes) {
    device_bytes room(std::ssize(bytes), 0, 0);
    room.upload(bytes.data(), room.size());
    decoded_.bytes().reset();
    outcome result;
    result.message = said_by([&] {
      Codec::decode(exec_, spec_, room.view(), decoded_.view(), space_);
      exec_.wait();
    });
    REQUIRE(decoded_.guards_are_intact());
    result.weights = decoded_.bytes().download(count * std::int64_t{sizeof(type)});
    return result;
  }
  outcome on_host(std::vector<std::byte> const& bytes) {
    cpu const host{.threads = 1};
    buffer<std::byte> room(std::ssize(bytes));
    std::memcpy(room.data(), bytes.data(), bytes.size());
    weight_array<type> weights(count);
    std::memset(static_cast<void*>(weights.data()), 0xa5, weights.size() * sizeof(type));
    workspace_plan const plan = Codec::plan_decode(host, spec_);
    buffer<std::byte> memory(plan.bytes());
    outcome result;
    result.message = said_by([&] {
      Codec::decode(host, spec_, room.view(), weights.view(), workspace(plan, memory));
      host.wait();
    });
    result.weights.resize(weights.size() * sizeof(type));
    std::memcpy(result.weights.data(), weights.data(), result.weights.size());
    return result;
  }

 private:
  cuda exec_;
  weight_stream_spec spec_;
  std::vector<std::byte> sound_;
  device_weights<type> decoded_;
  device_space space_;
};

template <class Codec>
void check_broken_streams(weight_stream_options options) {
  broken_streams<Codec> streams(options);
  REQUIRE(streams.on_device(streams.stream(0)).message.empty());
  constexpr std::uint64_t number = 300;
  std::uint64_t refused = 0;
  for (std::uint64_t seed = 0; seed < number; ++seed) {
    std::vector<std::byte> const bytes = streams.stream(seed);
    outcome const on_host = streams.on_host(bytes);
    INFO("seed " << seed);
    REQUIRE((streams.on_device(bytes) == on_host));
    refused += on_host.message.empty() ? 0 : 1;
  }
  CHECK(refused > number / 4);
  CHECK(refused < number);
}

}  // namespace

TEST_CASE("whole exponents of bf16 weights have the same streams and values on the device as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_kinds<whole<bfloat16, 7>>();
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

TEST_CASE("lossless pairs of codes are stored as they are coded, whole exponents afterwards", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  weight_stream_spec const spec = neuzip::spec(100'000);
  CHECK(pair_needs::slots(exec, spec) == 0);
  CHECK(pair_needs::tile_sums(exec, spec) > 0);
  CHECK(wide_needs::slots(exec, whole<bfloat16, 7>::spec(100'000)) > 0);
}
