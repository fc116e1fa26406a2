// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tests that do not depend on the type of weights: parts of streams, many tensors at once, graphs, reports.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <tessera/neuzip.hpp>

#include "algorithm/weights/device_weights.cuh"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::cuda_ok;
using tessera_test::device_bytes;
using tessera_test::device_space;
using tessera_test::device_weights;
using tessera_test::encode_on_host;
using tessera_test::message_of;
using tessera_test::weight_array;
using tessera_test::weight_kind;

namespace {

using bf16_array = weight_array<bfloat16>;

/// A stream that the host made, copied to an allocation of exactly its size on the device.
struct stream_on_device {
  weight_stream_spec spec;
  std::vector<std::byte> bytes;
  device_bytes memory;

  stream_on_device(bf16_array const& weights, weight_stream_options options)
      : spec(neuzip::spec(weights.count(), options)),
        bytes(encode_on_host<neuzip>(weights, options)),
        memory(static_cast<std::int64_t>(bytes.size()), 0, 0) {
    upload();
  }
  void upload() { memory.upload(bytes.data(), memory.size()); }
  void flip(std::int64_t position) {
    bytes[static_cast<std::size_t>(position)] ^= std::byte{0x10};
    upload();
  }
};

/// The first block that decoding reports, or -1.
std::int64_t failure_of(cuda const& exec, stream_on_device const& stream, std::int64_t first, std::int64_t blocks,
                        device_weights<bfloat16>& into) {
  neuzip::decode(exec, stream.spec, stream.memory.view(), first, blocks, into.view(),
                 device_space(neuzip::plan_decode(exec, stream.spec)));
  try {
    exec.wait();
  } catch (corrupt_data const& problem) {
    return problem.position();
  }
  return -1;
}

/// The tensors of a batch, of very different sizes and kinds; every fifth is too small to be coded.
struct batch {
  std::vector<weight_stream_options> options;
  std::vector<bf16_array> weights;
  std::vector<device_weights<bfloat16>> sources;
  std::vector<device_bytes> streams;
  std::vector<device_weights<bfloat16>> decoded;
  device_bytes sizes;
  std::vector<neuzip::source> encoding;
  std::vector<neuzip::target> decoding;

  explicit batch(int tensors) : sizes(8 * tensors) {
    for (int i = 0; i < tensors; ++i) {
      std::int64_t const count = i % 5 == 4 ? 100 * i : 3000 + 7919 * ((i * 13) % 11) + i;
      options.push_back({.block = 1024 << (i % 4), .checksums = i % 3 == 0});
      weights.emplace_back(tessera_test::weight_kinds[i % 9], static_cast<std::uint64_t>(i), count);
      weight_stream_spec const spec = neuzip::spec(count, options.back());
      sources.emplace_back(weights.back(), i % 4 == 3 ? 1 : 0);
      streams.emplace_back(neuzip::largest_bytes(spec));
      decoded.emplace_back(count, i % 4 == 2 ? 3 : 0);
      encoding.push_back(
          {spec, sources.back().view(), streams.back().view(), {reinterpret_cast<std::int64_t*>(sizes.data()) + i, 1}});
      decoding.push_back({spec, streams.back().view(), decoded.back().view()});
    }
  }

  void run(cuda const& exec) {
    array_view<neuzip::source const> const from(encoding.data(), std::ssize(encoding));
    array_view<neuzip::target const> const to(decoding.data(), std::ssize(decoding));
    device_space const encode_space(neuzip::plan_encode(exec, from));
    device_space const decode_space(neuzip::plan_decode(exec, to));
    neuzip::encode(exec, from, encode_space);
    neuzip::decode(exec, to, decode_space);
    exec.wait();
  }

  void check() const {
    std::vector<std::int64_t> bytes(streams.size());
    sizes.download(bytes.data(), sizes.size());
    REQUIRE(sizes.is_intact_after(sizes.size()));
    for (std::size_t i = 0; i < streams.size(); ++i) {
      INFO("tensor " << i << " of " << streams.size());
      std::vector<std::byte> const expected = encode_on_host<neuzip>(weights[i], options[i]);
      REQUIRE(bytes[i] == std::ssize(expected));
      REQUIRE((streams[i].download(bytes[i]) == expected));
      REQUIRE(streams[i].is_intact_after(bytes[i]));
      REQUIRE((decoded[i].download() == weights[i]));
      REQUIRE(decoded[i].guards_are_intact());
      REQUIRE(sources[i].guards_are_intact());
    }
  }
};

/// A stream of the runtime and what was captured from it.
class captured_work {
 public:
  captured_work() { cuda_ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  captured_work(captured_work const&) = delete;
  captured_work& operator=(captured_work const&) = delete;
  ~captured_work() {
    if (graph_ != nullptr) {
      static_cast<void>(cudaGraphExecDestroy(graph_));
    }
    static_cast<void>(cudaStreamDestroy(stream_));
  }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }

  template <class Work>
  void capture(Work&& work) {
    cudaGraph_t graph = nullptr;
    cuda_ok(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    work();
    cuda_ok(cudaStreamEndCapture(stream_, &graph));
    cuda_ok(cudaGraphInstantiate(&graph_, graph, 0));
    cuda_ok(cudaGraphDestroy(graph));
  }
  void replay() const { cuda_ok(cudaGraphLaunch(graph_, stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
};

/// Weights of fifteen neighbouring exponents, those for which there are codes. Block i also has escapes[i] far smaller
/// weights, spread over the block and over so many exponents that no code is made for one.
bf16_array weights_with_escapes(std::vector<int> const& escapes, std::int64_t block) {
  bf16_array weights(block * std::ssize(escapes));
  for (std::int64_t i = 0; i < weights.count(); ++i) {
    std::uint64_t const random = testing::hash(5, static_cast<std::uint64_t>(i));
    auto const below_largest = static_cast<int>(std::min(random % 15, (random >> 16) % 15));
    float const mantissa = 1.0F + static_cast<float>((random >> 32) % 128) / 128;
    weights[i] = store<bfloat16>(std::ldexp((random >> 63) != 0 ? -mantissa : mantissa, -4 - below_largest));
  }
  for (std::size_t i = 0; i < escapes.size(); ++i) {
    for (int k = 0; k < escapes[i]; ++k) {
      std::int64_t const position = k * block / escapes[i];
      weights[static_cast<std::int64_t>(i) * block + position] = store<bfloat16>(std::ldexp(1.25F, -100 + k % 60));
    }
  }
  return weights;
}

/// The index entry of a block.
weight_block_index index_entry(stream_on_device const& stream, std::int64_t block) {
  weight_block_index entry;
  std::memcpy(&entry, stream.bytes.data() + stream.spec.index_offset() + 8 * block, sizeof(entry));
  return entry;
}

}  // namespace

TEST_CASE("a part of the blocks decodes on its own on the device", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  bf16_array const weights(weight_kind::a_few_escapes, 2, 40'100);
  for (bool checksums : {false, true}) {
    stream_on_device const stream(weights, {.block = 1024, .checksums = checksums});
    for (auto [first, blocks] : {std::pair<int, int>{0, 1}, {0, 40}, {3, 4}, {39, 1}, {17, 23}, {5, 0}, {40, 0}}) {
      std::int64_t const begin = std::min<std::int64_t>(40'100, first * 1024);
      std::int64_t const count = std::min<std::int64_t>(40'100, begin + blocks * 1024) - begin;
      device_weights<bfloat16> part(count, first % 2);
      CHECK(failure_of(exec, stream, first, blocks, part) == -1);
      bf16_array const found = part.download();
      CHECK((count == 0 || std::memcmp(found.data(), weights.data() + begin, found.size() * 2) == 0));
      CHECK(part.guards_are_intact());
    }
  }
}

TEST_CASE("blocks of any number of escapes decode on the device", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  std::vector<int> const escapes{0, 1, 31, 32, 33, 63, 64, 65, 159, 160, 161, 300, 511, 512, 0, 40};
  for (int block : {8192, 1024}) {
    bf16_array const weights = weights_with_escapes(escapes, block);
    stream_on_device const stream(weights, {.block = block});
    for (std::size_t i = 0; i < escapes.size(); ++i) {
      weight_block_index const entry = index_entry(stream, static_cast<std::int64_t>(i));
      CHECK((entry.escapes == escapes[i] || entry.words == weight_block_index::raw));
    }
    CHECK(index_entry(stream, 4).escapes == 33);  // not all blocks are raw
    device_weights<bfloat16> decoded(weights.count());
    CHECK(failure_of(exec, stream, 0, std::ssize(escapes), decoded) == -1);
    CHECK((decoded.download() == weights));
    CHECK(decoded.guards_are_intact());
  }
}

TEST_CASE("an escape that cannot be is reported by the device, whichever of its block it is", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  constexpr int block = 8192;
  bf16_array const weights = weights_with_escapes({3, 200, 5}, block);
  for (int which : {0, 31, 32, 100, 199}) {
    for (std::uint32_t const spoiled : {~0U, 0xffffU}) {
      stream_on_device stream(weights, {.block = block});
      weight_block_index const entry = index_entry(stream, 1);
      REQUIRE(entry.escapes == 200);
      std::int64_t const begin = stream.spec.payload_offset() + std::int64_t{entry.position} * 16 +
                                 stream.spec.escapes_offset(block, entry.words) + 4 * which;
      std::memcpy(stream.bytes.data() + begin, &spoiled, sizeof(spoiled));
      stream.upload();
      device_weights<bfloat16> decoded(weights.count());
      CHECK(failure_of(exec, stream, 0, 3, decoded) == 1);
      bf16_array const found = decoded.download();
      int wrong = 0;
      for (std::int64_t i = 0; i < found.count(); ++i) {
        wrong += found[i].bits == (i / block == 1 ? 0 : weights[i].bits) ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("batches of any size have the streams and the weights of single tensors", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  for (int tensors : {1, 3, 24, 25, 32, 33, 70}) {
    batch all(tensors);
    all.run(exec);
    all.check();
  }
}

TEST_CASE("encoding twice into the same room gives the same bytes, whatever was there before", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  batch all(7);
  all.run(exec);
  for (std::size_t i = 0; i < all.weights.size(); ++i) {
    all.weights[i] = bf16_array(weight_kind::gauss, 100 + i, all.weights[i].count());
    all.sources[i].upload(all.weights[i]);
    all.streams[i].reset();
  }
  all.run(exec);
  all.check();
}

TEST_CASE("encode and decode are captured in a graph, which then works on other weights", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  captured_work work;
  cuda const exec{.stream = work.stream()};
  batch all(5);
  array_view<neuzip::source const> const from(all.encoding.data(), std::ssize(all.encoding));
  array_view<neuzip::target const> const to(all.decoding.data(), std::ssize(all.decoding));
  device_space const encode_space(neuzip::plan_encode(exec, from));
  device_space const decode_space(neuzip::plan_decode(exec, to));
  cuda_ok(cudaDeviceSynchronize());
  work.capture([&] {
    neuzip::encode(exec, from, encode_space);
    neuzip::decode(exec, to, decode_space);
  });
  for (std::uint64_t replay = 0; replay < 3; ++replay) {
    for (std::size_t i = 0; i < all.weights.size(); ++i) {
      all.weights[i] = bf16_array(tessera_test::weight_kinds[(i + replay) % 9], replay, all.weights[i].count());
      all.sources[i].upload(all.weights[i]);
      all.streams[i].reset();
      all.decoded[i].bytes().reset();
    }
    cuda_ok(cudaDeviceSynchronize());
    work.replay();
    exec.wait();
    all.check();
  }
}

TEST_CASE("the device reports the first broken block, makes zeros of it and decodes the others", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  bf16_array const weights(weight_kind::gauss, 2, 50 * 1024);
  stream_on_device stream(weights, {.block = 1024, .checksums = true});
  for (std::int64_t block : {37, 12}) {
    stream.flip(stream.spec.planes_offset() + stream.spec.planes_before(block) + 11);
  }
  device_weights<bfloat16> decoded(50 * 1024);
  CHECK(failure_of(exec, stream, 0, 50, decoded) == 12);
  bf16_array const found = decoded.download();
  int wrong = 0;
  for (std::int64_t i = 0; i < found.count(); ++i) {
    bool const is_broken = i / 1024 == 12 || i / 1024 == 37;
    wrong += found[i].bits == (is_broken ? 0 : weights[i].bits) ? 0 : 1;
  }
  CHECK(wrong == 0);
  device_weights<bfloat16> tail(20 * 1024);
  CHECK(failure_of(exec, stream, 30, 20, tail) == 37);  // numbers are those of the tensor's blocks
  device_weights<bfloat16> sound(10 * 1024);
  CHECK(failure_of(exec, stream, 20, 10, sound) == -1);
}

TEST_CASE("broken states, index entries and headers are reported without checksums, by the numbers of blocks",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  bf16_array const weights(weight_kind::gauss, 2, 50 * 1024);
  weight_stream_options const options{.block = 1024};
  device_weights<bfloat16> decoded(50 * 1024);
  for (std::int64_t block : {0, 7, 49}) {
    stream_on_device stream(weights, options);
    weight_block_index entry;
    std::memcpy(&entry, stream.bytes.data() + stream.spec.index_offset() + 8 * block, 8);
    std::int64_t const payload = stream.spec.payload_offset() + std::int64_t{entry.position} * 16;
    stream.bytes[static_cast<std::size_t>(payload + 3)] = std::byte{0xff};  // a state out of range
    stream.upload();
    CHECK(failure_of(exec, stream, 0, 50, decoded) == block);
    device_weights<bfloat16> alone(1024);
    CHECK(failure_of(exec, stream, block, 1, alone) == block);
    stream_on_device other(weights, options);
    other.bytes[static_cast<std::size_t>(other.spec.index_offset() + 8 * block + 3)] = std::byte{0x7f};  // far outside
    other.upload();
    CHECK(failure_of(exec, other, 0, 50, decoded) == block);
    CHECK(decoded.guards_are_intact());
  }
  for (std::int64_t position : {0, 4, 6, 11, 20, 24, 32, 40, 60, 64, 500}) {
    stream_on_device stream(weights, options);
    stream.flip(position);
    INFO("position " << position);
    CHECK(failure_of(exec, stream, 0, 50, decoded) == 0);
  }
}

TEST_CASE("a wrong checksum of header or codebook makes zeros of all weights on the device, in batches, too",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  bf16_array const weights(weight_kind::a_few_escapes, 2, 300 * 1024 + 77);
  for (bool checksums : {false, true}) {
    stream_on_device const sound(weights, {.block = 1024, .checksums = checksums});
    device_weights<bfloat16> decoded(weights.count());
    device_weights<bfloat16> beside(weights.count());
    for (std::int64_t position : {40, 60, 64 + 250}) {
      stream_on_device stream(weights, {.block = 1024, .checksums = checksums});
      stream.flip(position);
      INFO("position " << position);
      for (std::int64_t first : {0, 100}) {
        std::int64_t const count = weights.count() - first * 1024;
        device_weights<bfloat16> part(count);
        CHECK(failure_of(exec, stream, first, 301 - first, part) == 0);
        CHECK((part.download() == bf16_array(count)));
        CHECK(part.guards_are_intact());
      }
      neuzip::target const both[] = {{stream.spec, stream.memory.view(), decoded.view()},
                                     {sound.spec, sound.memory.view(), beside.view()}};
      array_view<neuzip::target const> const list(both, 2);
      neuzip::decode(exec, list, device_space(neuzip::plan_decode(exec, list)));
      CHECK(message_of([&] { exec.wait(); }).find("the header contradicts itself") != std::string::npos);
      CHECK((decoded.download() == bf16_array(weights.count())));
      CHECK((beside.download() == weights));
    }
  }
}

TEST_CASE("broken and sound tensors in turn are refused and decoded each by itself on the device", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  std::vector<bf16_array> expected;
  std::vector<stream_on_device> streams;
  std::vector<device_weights<bfloat16>> decoded;
  std::vector<neuzip::target> targets;
  for (int i = 0; i < 32; ++i) {  // a thread block has several of the small tensors
    std::int64_t const count = i % 8 == 0 ? 300 * 1024 : 1024 * (2 + i % 3) + i;
    expected.emplace_back(weight_kind::gauss, static_cast<std::uint64_t>(i), count);
    streams.emplace_back(expected.back(), weight_stream_options{.block = 1024});
    REQUIRE(streams.back().spec.coder == weight_coder::rans_pairs);
    if (i % 2 == 1) {
      streams.back().flip(64 + 250);  // the codebook's frequencies no longer add up
      expected.pop_back();
      expected.emplace_back(count);
    }
    decoded.emplace_back(count);
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    targets.push_back({streams[i].spec, streams[i].memory.view(), decoded[i].view()});
  }
  array_view<neuzip::target const> const list(targets.data(), std::ssize(targets));
  device_space const space(neuzip::plan_decode(exec, list));
  for (int turn = 0; turn < 20; ++turn) {
    for (std::size_t i = 0; i < streams.size(); ++i) {
      cuda_ok(cudaMemset(decoded[i].view().data, 0xa5, 2 * static_cast<std::size_t>(expected[i].count())));
    }
    neuzip::decode(exec, list, space);
    CHECK(message_of([&] { exec.wait(); }).find("the header contradicts itself") != std::string::npos);
    for (std::size_t i = 0; i < streams.size(); ++i) {
      INFO("turn " << turn << ", tensor " << i);
      REQUIRE((decoded[i].download() == expected[i]));
      REQUIRE(decoded[i].guards_are_intact());
    }
  }
}

TEST_CASE("a part of the blocks of a tensor that is stored as it is decodes on the device", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  bf16_array const weights(weight_kind::gauss, 2, 2040);
  stream_on_device const stream(weights, {.block = 1024});
  REQUIRE(stream.spec.coder == weight_coder::stored);
  for (auto [first, blocks] : {std::pair<int, int>{0, 1}, {0, 2}, {1, 1}, {2, 0}}) {
    auto const count = std::min<std::int64_t>(2040, (first + blocks) * 1024) - std::min(2040, first * 1024);
    device_weights<bfloat16> part(count);
    CHECK(failure_of(exec, stream, first, blocks, part) == -1);
    bf16_array const found = part.download();
    CHECK((count == 0 || std::memcmp(found.data(), weights.data() + first * 1024, found.size() * 2) == 0));
    CHECK(part.guards_are_intact());
  }
}

TEST_CASE("a stream that does not fit its room is reported by the device, and nothing is written past the room",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  bf16_array const weights(weight_kind::random_bits, 2, 60'000);
  weight_stream_spec const spec = neuzip::spec(60'000);
  std::vector<std::byte> const expected = encode_on_host<neuzip>(weights, {});
  device_weights<bfloat16> const source(weights);
  device_bytes size(8);
  for (std::int64_t room : {spec.smallest_bytes(), std::ssize(expected) - 16, std::ssize(expected)}) {
    device_bytes stream(room);
    neuzip::encode(exec, spec, source.view(), stream.view(), {reinterpret_cast<std::int64_t*>(size.data()), 1},
                   device_space(neuzip::plan_encode(exec, spec)));
    std::string const message = message_of([&] { exec.wait(); });
    std::int64_t bytes = 0;
    size.download(&bytes, 8);
    CHECK(bytes == std::ssize(expected));
    CHECK(stream.is_intact_after(room));
    if (room == std::ssize(expected)) {
      CHECK(message.empty());
      CHECK((stream.download(room) == expected));
    } else {
      CHECK_THAT(message, tessera_test::contains("does not fit into the space given"));
      CHECK_THAT(message, tessera_test::contains(std::to_string(expected.size())));
    }
  }
}

TEST_CASE("weights and streams on the device are coded without a plan, too", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  for (std::int64_t count : {0, 100, 60'001}) {
    bf16_array const weights(weight_kind::random_bits, 3, count);
    device_weights<bfloat16> const source(weights);
    buffer<std::byte> const stream = neuzip::encode(exec, source.view());
    std::vector<std::byte> found(static_cast<std::size_t>(stream.size()));
    exec.copy(stream, found);
    exec.wait();
    CHECK((found == encode_on_host<neuzip>(weights, {})));
    device_weights<bfloat16> const back(count);
    neuzip::decode(exec, stream, back.view());
    CHECK(back.guards_are_intact());
    CHECK(std::memcmp(back.download().data(), weights.data(), static_cast<std::size_t>(2 * count)) == 0);
  }
}
