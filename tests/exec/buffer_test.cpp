// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <numeric>
#include <utility>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/memory.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

bool is_aligned(void const* pointer, std::uintptr_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
}

/// Remembers the stream of the last call.
struct notes_stream {
  stream_handle stream = nullptr;
  void* allocate(std::size_t bytes, std::size_t alignment, stream_handle on) {
    stream = on;
    return host_memory::allocate(bytes, alignment);
  }
  void deallocate(void* pointer, std::size_t bytes, std::size_t alignment, stream_handle on) noexcept {
    stream = on;
    host_memory::deallocate(pointer, bytes, alignment);
  }
};

struct alignas(1024) page {
  int values[256];
};

}  // namespace

TEST_CASE("a buffer gives its memory back once, on the stream it came from", "[host]") {
  notes_stream notes;
  int stream = 0;
  {
    buffer<double> a(7, notes, &stream);
    CHECK(notes.stream == &stream);
    CHECK(is_aligned(a.data(), 256));
    notes.stream = nullptr;
    buffer<double> b = std::move(a);
    CHECK(b.size() == 7);
    CHECK(b.bytes() == 56);
    CHECK(a.data() == nullptr);  // NOLINT(bugprone-use-after-move): that it is empty is the point
    a = std::move(b);
    CHECK(a.view().size() == 7);
    CHECK(notes.stream == nullptr);
  }
  CHECK(notes.stream == &stream);
}

TEST_CASE("an empty buffer takes no memory, and impossible sizes are refused", "[host]") {
  tracking_memory counted{memory_handle()};
  buffer<int> const none(0, counted);
  CHECK(counted.allocations() == 0);
  CHECK(none.is_empty());
  CHECK_THROWS_AS(buffer<int>(-1), shape_error);
  CHECK_THROWS_WITH(buffer<int>(std::int64_t{1} << 61),
                    "buffer: 2305843009213693952 elements of 4 bytes are not a size");
}

TEST_CASE("a buffer of an executor comes from the executor's memory", "[host]") {
  tracking_memory counted{memory_handle()};
  cpu const exec{.threads = 1, .memory = counted};
  {
    buffer<double> const numbers(exec, 100);
    CHECK(counted.current_bytes() == 800);
    void* const more = numbers.memory().allocate(8, 8);
    CHECK(counted.current_bytes() == 808);
    numbers.memory().deallocate(more, 8, 8);
  }
  CHECK(counted.current_bytes() == 0);
}

TEST_CASE("a buffer that is assigned to gives back what it had at once", "[host]") {
  tracking_memory first{memory_handle()};
  tracking_memory second{memory_handle()};
  buffer<int> a(10, first);
  a = buffer<int>(20, second);
  CHECK(first.current_bytes() == 0);
  CHECK(second.current_bytes() == 80);
  buffer<int>& same = a;
  a = std::move(same);
  CHECK(a.size() == 20);
  CHECK(second.current_bytes() == 80);
}

TEST_CASE("a buffer is a range, and its views show the same elements", "[host]") {
  buffer<int> numbers(5);
  std::iota(numbers.begin(), numbers.end(), 3);
  buffer<int> const& same = numbers;
  CHECK(std::accumulate(same.begin(), same.end(), 0) == 3 + 4 + 5 + 6 + 7);
  numbers.view()[4] = 70;
  CHECK(same[4] == 70);
  CHECK(same.view().data == same.data());
  CHECK(array_view<int const>(same).size() == 5);
}

TEST_CASE("elements that ask for more than the usual alignment get it", "[host]") {
  STATIC_REQUIRE(buffer<char>::alignment == 256);
  STATIC_REQUIRE(buffer<page>::alignment == 1024);
  CHECK(is_aligned(buffer<page>(2).data(), 1024));
}
