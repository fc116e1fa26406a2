// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/neuzip.hpp>
#include <tessera/program/weights/parameter_slots.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/codecs.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::message_of;

namespace {

constexpr std::int64_t weights_of_slot = 5000;  // five blocks, the last one shorter

/// A parameter whose newly encoded stream is staged, and a slot with room for some of it.
struct staged_parameter {
  cpu exec{.threads = 2};
  std::vector<bfloat16> weights = std::vector<bfloat16>(weights_of_slot);
  buffer<std::byte> staged;
  std::int64_t staged_bytes;
  std::vector<bfloat16> arena;
  struct alignas(64) line {
    std::byte bytes[64];
  };
  std::vector<line> slot;
  stream_record record{};
  overflow_state overflow{};
  parameter_stream<bfloat16> stream;

  /// The slot's capacity is `share` of the stream's bytes, or the least if that is more.
  staged_parameter(double share, std::int64_t arena_blocks, std::uint64_t seed = 1)
      : arena(static_cast<std::size_t>(arena_blocks * 1024), bfloat16{0x7777}) {
    encode(seed);
    stream.spec = neuzip::spec(weights_of_slot, {.block = 1024});
    auto const wanted = static_cast<std::int64_t>(share * static_cast<double>(staged_bytes));
    std::int64_t const least = parameter_stream<bfloat16>::smallest_capacity(stream.spec);
    stream.capacity = ((wanted > least ? wanted : least) + 15) / 16 * 16;
    slot.resize(static_cast<std::size_t>(stream.capacity / 64 + 2));
    std::memset(slot.data(), 0xee, slot.size() * sizeof(line));
    stream.record = &record;
    stream.slot = reinterpret_cast<std::uint8_t*>(slot.data());
    stream.staged_bytes = &staged_bytes;
    stream.weights = weights.data();
    stream.arena = arena.data();
    stream.arena_blocks = arena_blocks;
    stream.overflow = &overflow;
    stream.number = 42;
    stream.status = exec.status();
  }
  void encode(std::uint64_t seed) {
    testing::fill(testing::gauss{}, seed, weights.data(), weights.size());
    buffer<std::byte> made = neuzip::encode(exec, weights, {.block = 1024});
    staged = buffer<std::byte>(exec, neuzip::largest_bytes(neuzip::spec(weights_of_slot, {.block = 1024})));
    staged_bytes = made.size();
    std::memcpy(staged.data(), made.data(), static_cast<std::size_t>(made.size()));
    stream.staged = reinterpret_cast<std::uint8_t*>(staged.data());
  }
  template <class Executor>
  void settle(Executor const& by) {
    by.run(settle_stream<bfloat16>{stream}, 1);
    move_stream<bfloat16> const move{stream};
    by.run(move, move.groups());
  }
  /// Decodes the slot, which must hold a sound stream.
  [[nodiscard]] std::vector<bfloat16> decoded() {
    auto const& header = *reinterpret_cast<weight_stream_header const*>(stream.slot);
    std::vector<bfloat16> found(weights.size(), bfloat16{0x7777});
    neuzip::decode(exec,
                   array_view<std::byte const>(reinterpret_cast<std::byte const*>(stream.slot),
                                               static_cast<std::int64_t>(header.total_bytes)),
                   found);
    exec.wait();
    return found;
  }
  /// Decodes the slot, and restores what is in the arena.
  template <class Executor>
  [[nodiscard]] std::vector<bfloat16> restored(Executor const& by) {
    std::vector<bfloat16> found = decoded();
    parameter_stream<bfloat16> into = stream;
    into.weights = found.data();
    by.run(restore_overflow<bfloat16>{into}, stream.spec.block_count());
    return found;
  }
  [[nodiscard]] static std::int64_t first_wrong(std::vector<bfloat16> const& a, std::vector<bfloat16> const& b) {
    std::size_t i = 0;
    while (i < a.size() && a[i] == b[i]) {
      ++i;
    }
    return static_cast<std::int64_t>(i);
  }
  [[nodiscard]] bool is_untouched_behind() const {
    return stream.slot[stream.capacity] == 0xee && stream.slot[stream.capacity + 63] == 0xee;
  }
};

}  // namespace

TEST_CASE("a stream that fits its slot is copied to it", "[host][threads]") {
  for (double const share : {1.0, 1.5}) {
    staged_parameter at(share, 5);
    at.settle(at.exec);
    CHECK(std::memcmp(at.stream.slot, at.staged.data(), static_cast<std::size_t>(at.staged_bytes)) == 0);
    CHECK(at.is_untouched_behind());
    CHECK(at.record.bytes == at.staged_bytes);
    CHECK(at.record.first_over == 5);
    CHECK(at.overflow.used_blocks == 0);
    CHECK(at.overflow.overflows == 0);
    CHECK(at.decoded() == at.weights);
    CHECK_NOTHROW(at.exec.wait());
  }
}

TEST_CASE("blocks that do not fit a slot go to the arena, and the slot holds a sound stream", "[host][threads]") {
  for (double const share : {0.98, 0.9, 0.8, 0.0}) {
    CAPTURE(share);
    staged_parameter at(share, 5);
    at.settle(at.exec);
    CHECK(at.record.bytes == at.staged_bytes);
    CHECK(at.record.first_over >= 0);
    CHECK(at.record.first_over < 5);
    CHECK(at.overflow.used_blocks == 5 - at.record.first_over);
    CHECK(at.overflow.overflows == 1);
    CHECK(at.is_untouched_behind());
    auto const& header = *reinterpret_cast<weight_stream_header const*>(at.stream.slot);
    CHECK(static_cast<std::int64_t>(header.total_bytes) == at.stream.capacity);
    CHECK(staged_parameter::first_wrong(at.decoded(), at.weights) >= at.record.first_over * 1024);
    CHECK(at.restored(at.exec) == at.weights);
    CHECK_NOTHROW(at.exec.wait());
  }
}

TEST_CASE("a parameter keeps its part of the arena, and the last one's part grows", "[host][threads]") {
  staged_parameter at(0.0, 20);
  at.overflow.used_blocks = 3;  // of other parameters
  at.settle(at.exec);
  auto const used = at.overflow.used_blocks;
  CHECK(at.record.arena_block == 3);
  at.encode(2);
  at.settle(at.exec);
  CHECK(at.record.arena_block == 3);
  CHECK(at.overflow.used_blocks == used);
  CHECK(at.restored(at.exec) == at.weights);
  at.record.arena_blocks = 1;  // as if it had needed less before
  at.overflow.used_blocks = 4;
  at.encode(3);
  at.settle(at.exec);
  CHECK(at.record.arena_block == 3);
  CHECK(at.overflow.used_blocks == used);
  at.record.arena_blocks = 1;
  at.overflow.used_blocks = 9;  // its part is not the last one any more
  at.encode(4);
  at.settle(at.exec);
  CHECK(at.record.arena_block == 9);
  CHECK(at.restored(at.exec) == at.weights);
}

TEST_CASE("where the arena is full a slot keeps its stream, and the parameter is named", "[host][threads]") {
  staged_parameter at(1.0, 0);
  at.settle(at.exec);
  auto const before = at.weights;
  at.stream.capacity = parameter_stream<bfloat16>::smallest_capacity(at.stream.spec);
  at.encode(5);
  at.settle(at.exec);
  std::string const message = message_of([&] { at.exec.wait(); });
  CHECK_THAT(message, tessera_test::contains("42"));
  CHECK(at.overflow.overflows == 1);
  CHECK(at.overflow.used_blocks == 0);
  CHECK(at.decoded() == before);
}

TEST_CASE("placing streams in slots keeps the rules for programs", "[host][threads]") {
  staged_parameter at(0.8, 5);
  testing::adversary const by{.seed = 6};
  at.settle(by);
  CHECK(at.restored(by) == at.weights);
  CHECK(at.overflow.overflows == 1);
}
