// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tests that do not depend on the type of weights: parts of streams and reports.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <tessera/neuzip.hpp>

#include "algorithm/weights/stream_on_device.cuh"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::bf16_array;
using tessera_test::cuda_ok;
using tessera_test::device_bytes;
using tessera_test::device_space;
using tessera_test::device_weights;
using tessera_test::encode_on_host;
using tessera_test::failure_of;
using tessera_test::message_of;
using tessera_test::stream_on_device;
using tessera_test::weight_kind;

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
