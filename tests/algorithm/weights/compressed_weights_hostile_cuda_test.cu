// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Thousands of broken streams on the device: no fault, no write outside of the output, and no wrong weights without a
// report. TESSERA_MUTATIONS sets their number (1000 by default). The test is made to run under compute-sanitizer:
// streams are allocations of exactly their size.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <vector>

#include <tessera/neuzip.hpp>
#include <tessera/testing/broken_weight_streams.hpp>

#include "algorithm/weights/device_weights.cuh"

using namespace tessera;
using tessera_test::device_bytes;
using tessera_test::device_space;
using tessera_test::device_weights;
using tessera_test::encode_on_host;
using tessera_test::weight_array;
using tessera_test::weight_kind;

namespace {

using stream_bytes = std::vector<std::byte>;

int mutations() {
  char const* const asked = std::getenv("TESSERA_MUTATIONS");
  return asked == nullptr ? 1000 : std::atoi(asked);
}

/// A valid stream, and room on the device for as many broken versions as one call decodes.
template <class Codec>
struct broken_streams {
  using type = typename Codec::value_type;
  static constexpr int most = 48;

  cuda exec;
  weight_array<type> weights;
  weight_stream_options options;
  weight_stream_spec spec;
  stream_bytes sound;
  std::vector<device_bytes> streams;
  std::vector<device_weights<type>> decoded;
  std::vector<typename Codec::target> targets;
  device_space space;

  broken_streams(weight_kind kind, std::int64_t count, weight_stream_options how)
      : weights(kind, 6, count),
        options(how),
        spec(Codec::spec(count, how)),
        sound(encode_on_host<Codec>(weights, how)),
        space(make_room()) {}

  workspace_plan make_room() {
    for (int i = 0; i < most; ++i) {
      streams.emplace_back(std::ssize(sound), 0, 0);
      decoded.emplace_back(spec.count, i % 2);
      targets.push_back({spec, streams.back().view(), decoded.back().view()});
    }
    return Codec::plan_decode(exec, array_view<typename Codec::target const>(targets.data(), most));
  }

  /// The first reported block, or -1. Throws errors that are not about the streams, as faults of the device.
  template <class Executor>
  static std::int64_t failure_of(Executor const& executor) {
    try {
      executor.wait();
    } catch (corrupt_data const& problem) {
      return problem.position();
    }
    return -1;
  }
  std::int64_t decode(int count) {
    Codec::decode(exec, array_view<typename Codec::target const>(targets.data(), count), space);
    return failure_of(exec);
  }

  void break_stream(int index, int seed) {
    stream_bytes broken = sound;
    auto const repair = options.checksums ? testing::checksum_repair::never : testing::checksum_repair::usual;
    testing::break_weight_stream(broken, static_cast<std::uint64_t>(seed), repair);
    streams[static_cast<std::size_t>(index)].upload(broken.data(), std::ssize(broken));
  }

  /// Decodes many streams at a time, which finds faults quickly.
  void check_batches(int number) {
    int reported = 0;
    int intact = 0;
    for (int first = 0; first < number; first += most) {
      for (int i = 0; i < most; ++i) {
        break_stream(i, first + i);
      }
      reported += decode(most) >= 0 ? 1 : 0;
      for (auto const& out : decoded) {
        intact += out.guards_are_intact() ? 1 : 0;
      }
    }
    CHECK(reported == (number + most - 1) / most);
    CHECK(intact == (number + most - 1) / most * most);
  }

  /// Decodes one stream at a time: the device and the host refuse the same streams at the same blocks, and decode all
  /// others to the same weights.
  void check_against_host(int number) {
    cpu const host{.threads = 1};
    int differing = 0;
    for (int seed = 0; seed < number; ++seed) {
      break_stream(0, 1'000'000 + seed);
      std::int64_t const failure = decode(1);
      stream_bytes const bytes = streams[0].download(streams[0].size());
      buffer<std::byte> stream(std::ssize(bytes));
      std::memcpy(stream.data(), bytes.data(), bytes.size());
      weight_array<type> expected(spec.count);
      workspace_plan const plan = Codec::plan_decode(host, spec);
      buffer<std::byte> memory(plan.bytes());
      Codec::decode(host, spec, stream.view(), expected.view(), workspace(plan, memory));
      differing += failure_of(host) == failure && decoded[0].download() == expected ? 0 : 1;
      if (options.checksums && failure < 0) {
        REQUIRE((expected == weights));  // no other weights without a report
      }
    }
    CHECK(differing == 0);
  }

  void check() {
    streams[0].upload(sound.data(), std::ssize(sound));
    REQUIRE(decode(1) == -1);
    check_batches(mutations() / 4);
    check_against_host(std::max(100, mutations() / 50));
  }
};

}  // namespace

TEST_CASE("broken bf16 streams decode on the device without a fault", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  broken_streams<neuzip>(weight_kind::a_few_escapes, 4300, {.block = 2048}).check();
}

TEST_CASE("broken bf16 streams with checksums never give other weights without a report", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  broken_streams<neuzip>(weight_kind::mixture, 4096, {.block = 1024, .checksums = true}).check();
}

TEST_CASE("broken fp32 streams of fixed codes decode on the device without a fault", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  broken_streams<neuzip_fixed<float>>(weight_kind::a_few_escapes, 2100, {.block = 1024}).check();
}

TEST_CASE("broken e5m2 streams decode on the device without a fault", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  broken_streams<neuzip_of<float8_e5m2>>(weight_kind::gauss, 8200, {.block = 4096}).check();
}

TEST_CASE("streams that end too early are refused by the device, which reads nothing past their end", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  weight_array<bfloat16> const weights(weight_kind::gauss, 3, 6000);
  weight_stream_spec const spec = neuzip::spec(6000, {.block = 2048});
  stream_bytes const sound = encode_on_host<neuzip>(weights, {.block = 2048});
  device_weights<bfloat16> decoded(6000);
  device_space const space(neuzip::plan_decode(exec, spec));
  std::int64_t const shortest = spec.smallest_bytes();
  for (std::int64_t i = 0; i < 40; ++i) {
    std::int64_t const length = shortest + (std::ssize(sound) - 1 - shortest) * i / 39;
    stream_bytes cut(sound.begin(), sound.begin() + length);
    if (i % 2 == 1) {  // every second header says so, too
      weight_stream_header header;
      std::memcpy(&header, cut.data(), sizeof(header));
      header.total_bytes = static_cast<std::uint64_t>(length);
      header.header_checksum = checksum_of(header);
      std::memcpy(cut.data(), &header, sizeof(header));
    }
    device_bytes stream(length, 0, 0);
    stream.upload(cut.data(), length);
    neuzip::decode(exec, spec, stream.view(), decoded.view(), space);
    CHECK_THROWS_AS(exec.wait(), corrupt_data);
    CHECK(decoded.guards_are_intact());
  }
}
