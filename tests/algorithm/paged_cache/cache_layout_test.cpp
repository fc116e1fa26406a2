// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <tessera/algorithm/paged_cache/cache_layout.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera_test::contains;

namespace {

using layout = cache_layout<bfloat16>;

cache_extents extents() {
  return {.slots = 3, .tokens = 1000, .blocks = 40, .heads = 2, .channels = 96, .window = 128};
}

template <class Error>
std::string complaint(cache_extents const& e, cache_layers const& part = {}) {
  try {
    layout const made(e, {part});
  } catch (Error const& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::int64_t const beyond_32_bits = std::int64_t{1} << 32;

}  // namespace

TEST_CASE("a cache has room for its pages, tails and retained tokens", "[host]") {
  cache_extents const e = extents();
  layout const made(e, {{.layers = 1, .key_bits = 8, .value_bits = 2, .value_group = 16, .row_capacity = 7}, {}});
  REQUIRE(made.regions.size() == 2);
  CHECK(made.regions[0].format == cache_page_format{96, 8, 2, 6, 1});
  CHECK(made.regions[1].format == cache_page_format{96, 4, 4, 2, 2});
  CHECK(made.regions[0].row_capacity == 7);
  CHECK(made.regions[1].row_capacity == 50);
  for (auto const& part : made.regions) {
    std::int64_t const vectors = 2 * part.format.layers * e.heads;  // keys and values of a token
    CHECK(part.pages.count == 40 * 2 * part.format.bytes());
    CHECK(part.tail.count == 3 * (128 + 64 + 64) * vectors * 96);  // the window, an open page, and one more
    CHECK(part.rows.count == 3 * part.row_capacity * vectors * 96);
    CHECK(part.row_counts.count == 6);
    CHECK(part.refused.count == 6);
    CHECK(part.thresholds.count == 12);
  }
}

TEST_CASE("parts of a cache lie apart in its block", "[host]") {
  cache_extents const e = extents();
  layout const made(e, {{.layers = 1}, {}});
  buffer<std::byte> block(made.plan.bytes());
  workspace const space(made.plan, block.view());
  std::memset(block.data(), 0, static_cast<std::size_t>(made.plan.bytes()));
  std::int64_t bytes = 0;
  auto const fill = [&](void* data, std::int64_t count) {
    REQUIRE(static_cast<std::byte*>(data) >= block.data());
    REQUIRE(static_cast<std::byte*>(data) + count <= block.data() + made.plan.bytes());
    for (std::int64_t i = 0; i < count; ++i) {
      auto& one = static_cast<unsigned char*>(data)[i];
      bytes += one == 0 ? 1 : 0;
      one = 1;
    }
  };
  std::int64_t expected = 0;
  for (std::size_t part = 0; part < 2; ++part) {
    cache_memory<bfloat16> const memory = made.memory(part, e, space);
    std::int64_t const sizes[] = {memory.page_bytes(e.blocks),
                                  2 * memory.tail_values(e.slots),
                                  2 * memory.row_values(e.slots),
                                  4 * 6,
                                  4 * 6,
                                  4 * 12};
    void* const lists[] = {memory.pages,      memory.tail,         memory.rows,
                           memory.row_counts, memory.refused_rows, memory.thresholds};
    for (std::size_t i = 0; i < 6; ++i) {
      fill(lists[i], sizes[i]);
      expected += sizes[i];
    }
    CHECK(memory.heads == e.heads);
    CHECK(memory.window == e.window);
    CHECK(memory.slot_count == e.slots);
    CHECK(memory.most_tokens == e.tokens);
    CHECK(memory.block_count == e.blocks);
  }
  CHECK(bytes == expected);
}

TEST_CASE("a twentieth of the tokens can be retained where nothing else is said, rounded up", "[host]") {
  for (auto [tokens, capacity] : {std::pair<std::int64_t, std::int64_t>{0, 0}, {1, 1}, {19, 1}, {20, 1}, {21, 2}}) {
    cache_extents e = extents();
    e.tokens = tokens;
    CAPTURE(tokens);
    CHECK(layout(e, {{}}).regions[0].row_capacity == capacity);
    CHECK(layout(e, {{.row_capacity = 0}}).regions[0].row_capacity == 0);
  }
}

TEST_CASE("a cache of nothing takes nothing", "[host]") {
  cache_extents const nothing{.slots = 0, .tokens = 0, .blocks = 0, .heads = 1, .channels = 128, .window = 0};
  CHECK(layout(nothing, {{}, {}}).plan.bytes() == 0);
  CHECK(layout(extents(), {}).plan.bytes() == 0);
}

TEST_CASE("extents of a cache that cannot be are named", "[host]") {
  auto const with = [](auto member, std::int64_t value) {
    cache_extents e = extents();
    e.*member = value;
    return complaint<shape_error>(e);
  };
  CHECK_THAT(with(&cache_extents::slots, -1), contains("-1 slots"));
  CHECK_THAT(with(&cache_extents::blocks, -2), contains("-2 blocks"));
  CHECK_THAT(with(&cache_extents::tokens, -3), contains("-3 tokens"));
  CHECK_THAT(with(&cache_extents::heads, 0), contains("0 heads"));
  for (std::int64_t const window : {-64, 1, 63, 65}) {
    CHECK_THAT(with(&cache_extents::window, window),
               contains("has " + std::to_string(window) + " tokens") && contains("multiple of 64"));
  }
  for (std::int64_t const channels : {std::int64_t{-96}, std::int64_t{0}, std::int64_t{31}, std::int64_t{33},
                                      std::int64_t{288}, beyond_32_bits + 128, 128 - beyond_32_bits}) {
    CHECK_THAT(with(&cache_extents::channels, channels), contains(std::to_string(channels) + " channels"));
  }
}

TEST_CASE("sizes of a cache that do not fit 63 bits are not taken for smaller ones", "[host]") {
  std::int64_t const huge = std::int64_t{1} << 62;
  auto const with = [](auto member, std::int64_t value, cache_layers const& part = {}) {
    cache_extents e = extents();
    e.slots = 4;
    e.heads = 4;
    e.*member = value;
    return complaint<shape_error>(e, part);
  };
  CHECK_THAT(with(&cache_extents::blocks, huge), contains(std::to_string(huge)) && contains("is not a size"));
  CHECK_THAT(with(&cache_extents::blocks, huge / 4), contains("is not a size"));
  CHECK_THAT(with(&cache_extents::slots, huge, {.row_capacity = 0}), contains("is not a size"));
  CHECK_THAT(with(&cache_extents::heads, huge, {.row_capacity = 0}), contains("is not a size"));
  CHECK_THAT(with(&cache_extents::window, huge, {.row_capacity = 0}), contains("is not a size"));
  CHECK_THAT(with(&cache_extents::slots, huge / 4, {.row_capacity = 0}), contains("is not a size"));
  CHECK_THAT(with(&cache_extents::tokens, INT64_MAX), contains("numbers of more than 31 bits"));
}

TEST_CASE("retained tokens of a head have numbers of 31 bits", "[host]") {
  cache_extents const e = extents();
  CHECK(complaint<shape_error>(e, {.row_capacity = INT32_MAX}) == "nothing was thrown");
  CHECK_THAT(complaint<shape_error>(e, {.row_capacity = std::int64_t{INT32_MAX} + 1}),
             contains("2147483648 retained tokens of a head"));
}

TEST_CASE("ways to keep layers that there are not are named", "[host]") {
  cache_extents const e = extents();
  CHECK_THAT(complaint<value_error>(e, {.value_group = 0}), contains("0 channels") && contains("at least 1"));
  CHECK_THAT(complaint<shape_error>(e, {.value_group = 15}), contains("7 groups of 96 channels") && contains("16"));
  CHECK_THAT(complaint<value_error>(e, {.key_bits = 5}), contains("5 bits"));
  CHECK_THAT(complaint<value_error>(e, {.value_bits = 0}), contains("0 bits"));
  CHECK_THAT(complaint<shape_error>(e, {.layers = 3}), contains("3 layers"));
  CHECK_THAT(complaint<shape_error>(e, {.value_group = 24}), contains("4 groups of 96 channels"));
}
