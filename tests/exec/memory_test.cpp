// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/memory.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

bool is_aligned(void const* pointer, std::uintptr_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
}

}  // namespace

TEST_CASE("host memory is aligned as asked", "[host]") {
  memory_handle const host;
  for (std::size_t alignment : {1u, 64u, 4096u}) {
    void* const block = host.allocate(100, alignment);
    CHECK(is_aligned(block, alignment));
    host.deallocate(block, 100, alignment);
  }
}

TEST_CASE("a handle to a shared resource keeps it alive", "[host]") {
  auto tracked = std::make_shared<tracking_memory>(memory_handle());
  std::weak_ptr<tracking_memory> const watched = tracked;
  buffer<int> numbers(10, memory_handle(std::move(tracked)));
  CHECK(watched.lock()->current_bytes() == 40);
  numbers = buffer<int>();
  CHECK(watched.expired());
}

TEST_CASE("an arena hands out aligned pieces and says what is left", "[host]") {
  alignas(256) std::byte block[1024];
  arena pieces(block, sizeof(block));
  void* const a = pieces.allocate(10, 1);
  void* const b = pieces.allocate(100, 64);
  CHECK(a == block);
  CHECK(b == block + 64);
  CHECK_THROWS_WITH(pieces.allocate(861, 1), "arena.allocate: 861 bytes are asked for but 860 of 1024 are left");
  CHECK_THROWS_AS(pieces.allocate(~std::size_t{0}, 1), shape_error);
  CHECK_NOTHROW(pieces.deallocate(pieces.allocate(860, 1), 860, 1));
  CHECK(pieces.peak_bytes() == 1024);
  pieces.deallocate(a, 10, 1);
  CHECK(pieces.allocate(1, 1) == block + 164);
}

TEST_CASE("an arena is empty again when the last piece is back", "[host]") {
  arena pieces(memory_handle(), 512);
  void* const a = pieces.allocate(200, 1);
  void* const b = pieces.allocate(200, 1);
  pieces.deallocate(a, 200, 1);
  CHECK_THROWS_AS(pieces.allocate(200, 1), shape_error);
  pieces.deallocate(b, 200, 1);
  CHECK(pieces.allocate(512, 1) == a);
}

TEST_CASE("the peak is exact, also with several threads", "[host][threads]") {
  tracking_memory counted{memory_handle()};
  void* const a = counted.allocate(100, 8);
  void* const b = counted.allocate(50, 8);
  counted.deallocate(a, 100, 8);
  void* const c = counted.allocate(60, 8);
  CHECK(counted.current_bytes() == 110);
  CHECK(counted.peak_bytes() == 150);
  counted.reset_peak();
  CHECK(counted.peak_bytes() == 110);
  counted.deallocate(b, 50, 8);
  counted.deallocate(c, 60, 8);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&counted] {
      for (int i = 0; i < 500; ++i) {
        counted.deallocate(counted.allocate(1000, 8), 1000, 8);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(counted.current_bytes() == 0);
  CHECK(counted.peak_bytes() >= 1000);
  CHECK(counted.peak_bytes() <= 4000);
  CHECK(counted.allocations() == 2003);
}

TEST_CASE("what an upstream resource refuses is not counted", "[host]") {
  alignas(256) std::byte block[64];
  arena small(block, sizeof(block));
  tracking_memory counted{small};
  CHECK_THROWS_AS(counted.allocate(65, 1), shape_error);
  CHECK(counted.current_bytes() == 0);
  CHECK(counted.peak_bytes() == 0);
}

TEST_CASE("an arena takes no block that is null", "[host]") {
  CHECK_THROWS_AS(arena(nullptr, 64), value_error);
  CHECK_THROWS_WITH(arena(nullptr, 64), "arena: the block has no memory but 64 bytes");
  arena empty(nullptr, 0);
  CHECK_THROWS_AS(empty.allocate(1, 1), shape_error);
}
