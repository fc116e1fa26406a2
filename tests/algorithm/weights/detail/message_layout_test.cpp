// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/algorithm/weights/detail/message_layout.hpp>
#include <tessera/neuzip.hpp>

#include "support/catch.hpp"
#include "support/collective_runs.hpp"

using namespace tessera;
using tessera_test::small_messages;

namespace message_layout_test {

using layout_type = detail::message_layout<neuzip>;
constexpr std::int64_t block = layout_type::block;

std::vector<std::int64_t> sizes_of(layout_type const& layout) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 0; i < layout.chunks; ++i) {
    sizes.push_back(layout.weights_of(i));
  }
  return sizes;
}

/// Chunks from one block up to `longest` blocks.
layout_type with_longest(std::int64_t longest, std::int64_t count) {
  auto options = small_messages();
  options.head_bytes = 0;
  options.longest_bytes = 2 * longest * block;
  return layout_type::of("test", count, options);
}

}  // namespace message_layout_test

using namespace message_layout_test;

TEST_CASE("chunks grow from the first one and shrink to the last one", "[host]") {
  CHECK(sizes_of(with_longest(8, 1)) == std::vector<std::int64_t>{1});
  CHECK(sizes_of(with_longest(8, block + 1)) == std::vector<std::int64_t>{block, 1});
  CHECK(sizes_of(with_longest(8, 4 * block)) == std::vector<std::int64_t>{block, 2 * block, block});
  CHECK(sizes_of(with_longest(8, 19 * block)) ==
        std::vector<std::int64_t>{block, 2 * block, 4 * block, 8 * block, 3 * block, block});
  CHECK(sizes_of(with_longest(8, 27 * block)) ==
        std::vector<std::int64_t>{block, 2 * block, 4 * block, 8 * block, 8 * block, 3 * block, block});
  CHECK(sizes_of(with_longest(1, 3 * block + 5)) == std::vector<std::int64_t>{block, block, block, 5});
}

TEST_CASE("chunks cover the list behind its head, in whole blocks", "[host]") {
  for (std::int64_t count = 1; count < 100 * block; count += 7919) {
    for (std::int64_t const longest : {1, 3, 20}) {
      layout_type const layout = with_longest(longest, count);
      REQUIRE(layout.first_of(0) == layout.head);
      REQUIRE(layout.first_of(layout.chunks) == count);
      REQUIRE(layout.chunks <= layout_type::most_chunks);
      for (std::int64_t i = 0; i < layout.chunks; ++i) {
        REQUIRE(layout.weights_of(i) > 0);
        REQUIRE((i + 1 == layout.chunks || layout.weights_of(i) % block == 0));
        REQUIRE(layout.weights_of(i) <= layout.weights_of(layout.longest()));
      }
    }
  }
}

TEST_CASE("there are at most 32 chunks, longer ones for more weights", "[host]") {
  CHECK(layout_type::of("test", 278528, small_messages()).chunks == layout_type::most_chunks);
  auto options = small_messages();
  for (std::int64_t const bytes : {std::int64_t{1}, std::numeric_limits<std::int64_t>::max()}) {
    options.chunk_bytes = bytes;
    options.longest_bytes = bytes;
    auto const longer = layout_type::of("test", std::int64_t{1} << 35, options);
    CHECK(longer.chunks <= layout_type::most_chunks);
    CHECK(longer.first_of(longer.chunks) == std::int64_t{1} << 35);
  }
}

TEST_CASE("each call encodes twice as much as all before, the last one what remains", "[host]") {
  layout_type const layout = with_longest(8, 27 * block);
  CHECK(layout.longest() == 3);
  CHECK(layout.group_from(0) == 1);
  CHECK(layout.group_from(3) == 1);  // 8 and 8 blocks would be more than twice the 7 before
  CHECK(layout.group_from(4) == 3);
  CHECK(layout.table_chunk == 4);
  CHECK(layout.largest_group() == 3);
  CHECK(layout_type::of("test", 278528, small_messages()).largest_group() == 14);  // after 2, 4 and 12
}

TEST_CASE("streams that are stored have room, apart from each other, and planes at whole lines", "[host]") {
  for (std::int64_t const count : {1, 2048, 8191, 100003, 300007}) {
    layout_type const layout = with_longest(4, count);
    for (std::int64_t i = 0; i < layout.chunks; ++i) {
      weight_stream_spec const spec = layout.spec_of(i);
      std::int64_t const first = layout.stored_at(i);
      CHECK(first >= layout.stored_bytes_before(i));
      CHECK(first % 16 == 0);
      CHECK(first + neuzip::largest_bytes(spec) <= layout.stored_bytes_before(i + 1));
      CHECK((spec.coder == weight_coder::stored || (first + spec.planes_offset()) % 128 == 0));
    }
  }
}
