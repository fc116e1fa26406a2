// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <tessera/algorithm/paged_cache/block_pool.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/memory.hpp>
#include <tessera/minicache.hpp>

#include "support/cache_problem.hpp"
#include "support/catch.hpp"
#include "support/small_model.hpp"

using namespace tessera;
using namespace tessera_test;
using namespace tessera_test::small;

TEST_CASE("layers know their parts", "[host]") {
  small_model const model(1);
  CHECK(model.cache.layers() == 4);
  CHECK(model.cache.part_of(1) == 1);
  CHECK(model.cache.part_of(2) == 2);
  CHECK(model.cache.part_of(3) == 2);
  CHECK(model.cache.side_of(2) == 0);
  CHECK(model.cache.side_of(3) == 1);
  CHECK_THROWS_AS(model.cache.part_of(4), value_error);
  CHECK(model.cache.memory(0).format == cache_page_format{64, 8, 4, 1, 1});
}

TEST_CASE("decoding step by step gives the cache that an append at once gives", "[host][long]") {
  constexpr std::int64_t tokens = 330;
  auto const data = make_model(2, tokens);
  small_model bulk(2);
  bulk.append(data, 0, tokens);
  small_model stepped(2);
  stepped.append(data, 0, 100);
  auto const queries = attention_samples<bfloat16>(testing::gauss{}, 3, 1, 2 * 2 * heads * 5 * channels);
  std::vector<float> last;
  for (std::int64_t first = 100; first < tokens; first += 5) {
    last = stepped.step(data, first, 5, queries);
  }
  CHECK(stepped.pages == bulk.pages);
  CHECK(stepped.pages[0] == 4);
  for (int layer = 0; layer < 4; ++layer) {
    for (int which = 0; which < 2; ++which) {
      CHECK(stepped.restored(layer, which, tokens) == bulk.restored(layer, which, tokens));
    }
  }
  // The last layer's results are those of the formula over the restored keys and values, since no page was sealed.
  attention_problem<bfloat16> p{{2, 2 * heads, heads, 5, tokens, channels}, queries, {}, {}};
  p.options.is_causal = true;
  auto const expected =
      attention_by_formula(p, {p.shape, as_doubles(queries), as_doubles(stepped.restored(3, 0, tokens)),
                               as_doubles(stepped.restored(3, 1, tokens))});
  CHECK(error_of(as_doubles(last), expected.result).relative_l1 < 1e-5);
}

TEST_CASE("sequences of a batch may bring different numbers of tokens", "[host]") {
  auto const data = make_model(3, 300);
  small_model batch(3);
  batch.append(data, 0, 300, {300, 0, 129});
  for (std::int64_t i : {0, 2}) {
    std::int64_t const tokens = i == 0 ? 300 : 129;
    small_model alone(1);
    auto of_one = data;
    for (auto& part : of_one) {
      for (auto& layer : part.part) {
        for (auto& list : layer) {
          std::int64_t const size = heads * 300 * channels;
          list = {list.begin() + i * size, list.begin() + (i + 1) * size};
        }
      }
      part.sequences = 1;
    }
    alone.append(of_one, 0, tokens);
    auto const all = batch.restored(3, 1, 300);
    auto const one = alone.restored(3, 1, 300);
    int wrong = 0;
    for (std::int64_t k = 0; k < heads * 300 * channels; ++k) {
      bool const is_there = k / channels % 300 < tokens;
      wrong += is_there ? all[as_size(i * heads * 300 * channels + k)] != one[as_size(k)]
                        : all[as_size(i * heads * 300 * channels + k)] != -77.0F;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("two sequences share the pages of their beginning", "[host][slow]") {
  auto data = make_model(2, 400);
  for (auto& part : data) {  // both have the same first 200 tokens
    for (auto& layer : part.part) {
      for (auto& list : layer) {
        for (std::int64_t head = 0; head < heads; ++head) {
          std::memcpy(list.data() + (heads + head) * 400 * channels, list.data() + head * 400 * channels,
                      as_size(200 * channels) * sizeof(bfloat16));
        }
      }
    }
  }
  small_model apart(2);
  apart.append(data, 0, 200);
  apart.append(data, 200, 200);
  small_model shared(2);
  shared.count = 1;
  shared.append(data, 0, 200);
  shared.count = 2;
  shared.lengths[1] = shared.lengths[0];
  shared.pages[1] = shared.pages[0];
  REQUIRE(shared.pages[0] == 2);
  for (std::size_t page = 0; page < 2; ++page) {
    shared.blocks[8 + page] = shared.blocks[page];
    shared.pool.share(shared.blocks[page]);
  }
  std::vector<std::int32_t> const from{0};
  std::vector<std::int32_t> const to{1};
  shared.cache.fork(shared.exec, from, to);
  shared.append(data, 200, 200);
  for (int layer = 0; layer < 4; ++layer) {
    CHECK(shared.restored(layer, 0, 400) == apart.restored(layer, 0, 400));
    CHECK(shared.restored(layer, 1, 400) == apart.restored(layer, 1, 400));
  }
  auto const with = shared.cache.wait_for_statistics(shared.exec, shared.sequences());
  auto const without = apart.cache.wait_for_statistics(apart.exec, apart.sequences());
  CHECK(with.codes * 10 == without.codes * 8);  // 8 blocks instead of 10
  CHECK(with.tokens == without.tokens);
  CHECK(with.retained == without.retained);  // each sequence has its own
}

TEST_CASE("a prefix of whole pages begins another sequence without its tail", "[host]") {
  auto const data = make_model(1, 400);
  small_model model(1);
  model.append(data, 0, 330);
  REQUIRE(model.pages[0] == 4);
  // The second sequence has the first two pages, and continues with other tokens.
  small_model* const m = &model;
  m->blocks.resize(16, -1);
  m->lengths.push_back(128);
  m->pages.push_back(2);
  for (std::size_t page = 0; page < 2; ++page) {
    m->blocks[8 + page] = m->blocks[page];
    m->pool.share(m->blocks[page]);
  }
  m->count = 2;
  std::vector<std::int32_t> const from{0};
  std::vector<std::int32_t> const to{1};
  m->cache.fork(m->exec, from, to);
  auto const more = make_model(2, 150);
  m->append(more, 0, 150);
  CHECK(m->pages == std::vector<std::int32_t>{6, 3});
  auto const found = m->restored(2, 0, 480);
  auto const head = [&](std::int64_t sequence, std::int64_t token) {
    return found.data() + (sequence * heads * 480 + token) * channels;
  };
  CHECK(std::memcmp(head(0, 0), head(1, 0), 128 * channels * sizeof(float)) == 0);
  auto const tail = as_doubles(more[2].part[0][0]);
  for (std::int64_t i = 0; i < channels; ++i) {  // the last token of the second sequence
    CHECK(double{head(1, 277)[i]} == tail[as_size((heads * 150 + 149) * channels + i)]);
  }
}

TEST_CASE("bytes are counted to the last one", "[host]") {
  auto const data = make_model(2, 330);
  small_model model(2);
  model.append(data, 0, 330, {330, 70});
  auto const found = model.cache.wait_for_statistics(model.exec, model.sequences());
  // The first sequence has four pages and 74 tokens, the second no page and 70 tokens.
  std::int64_t const pages = 4 * heads;
  CHECK(found.tokens == 400);
  CHECK(found.codes == pages * 64 * 64 * (8 + 4 + 4 + 4 + 4 + 4) / 8);
  std::int64_t const one = 4 * 64 + 64 * 2 * 2;        // bytes of a layer: scales and minima; scales and ratios
  std::int64_t const two = 4 * 64 + 64 * 2 * (2 + 1);  // bytes of a pair: scales of both layers
  CHECK(found.scales == pages * (2 * one + two));
  CHECK(found.norms == pages * 64 * 2 * (1 + 1 + 2));
  CHECK(found.headers == pages * 32 * 3);
  CHECK(found.tail == (74 + 70) * heads * 4 * 2 * channels * 2);
  CHECK(found.uncompressed == 400 * heads * 4 * 2 * channels * 2);
  std::int64_t rows = 0;
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int64_t page = 0; page < 4; ++page) {
      page_reader const reader{model.cache.memory(2).format,
                               model.cache.memory(2).page(model.blocks[as_size(page)], head), 0};
      rows += popcount(reader.header().retained);
    }
  }
  CHECK(rows > 0);
  CHECK(found.retained_tokens == rows);
  CHECK(found.retained == rows * 2 * 2 * channels * 2);
  CHECK(found.bookkeeping == 4 * (4 + 3) + 4 * (0 + 3) + 3 * 2 * heads * 16);
  std::int64_t whole = 0;
  for (int part = 0; part < 3; ++part) {
    whole += model.cache.memory(part).format.bytes() * pages;
  }
  CHECK(found.codes + found.scales + found.norms + found.headers == whole);
  CHECK(found.used() == whole + found.retained + found.tail + found.bookkeeping);
  CHECK(found.reserved == minicache::plan(model.exec, model.extents, {.parts = model.parts}).bytes());
  CHECK_THAT(found.describe(), contains(std::to_string(found.used())));
}

TEST_CASE("after it is made a cache takes no memory", "[host]") {
  tracking_memory counted{memory_handle()};
  small_model model(2);
  model.exec.memory = memory_handle(counted);
  model.cache = minicache(model.exec, model.extents, {.parts = model.parts});
  CHECK(counted.allocations() == 1);
  CHECK(counted.current_bytes() ==
        static_cast<std::size_t>(minicache::plan(model.exec, model.extents, {.parts = model.parts}).bytes()));
  auto const data = make_model(2, 200);
  auto const before = counted.allocations();
  model.append(data, 0, 200);
  CHECK(counted.allocations() == before + 1);  // the workspace that the test allocates
}

TEST_CASE("a slot can be used again", "[host]") {
  auto const data = make_model(1, 330);
  small_model model(1);
  model.append(data, 0, 330);
  auto const first = model.restored(3, 0, 330);
  std::vector<std::int32_t> const slots{0};
  model.cache.reset(model.exec, slots);
  for (std::int32_t& block : model.blocks) {
    if (block >= 0) {
      model.pool.give_back(block);
      block = -1;
    }
  }
  model.lengths[0] = 0;
  model.pages[0] = 0;
  model.append(data, 0, 330);
  CHECK(model.restored(3, 0, 330) == first);
}

TEST_CASE("the paper's vectors are whole tokens", "[host]") {
  CHECK(minicache_paper::pair().whole_tokens);
  CHECK_FALSE(minicache::pair().whole_tokens);
  CHECK(minicache_paper::pair().value_group == 128);
  CHECK(minicache::pair().retention.amount == 0.05F);
  CHECK(minicache::single().retention.rule == retention_rule::none);
}

TEST_CASE("a cache in the caller's memory is the same, and takes none of its own", "[host]") {
  tracking_memory counted{memory_handle()};
  small_model model(2);
  auto const data = make_model(2, 200);
  model.append(data, 0, 200);
  small_model other(2);
  minicache::options_type const options{.parts = other.parts};
  auto const plan = minicache::plan(other.exec, other.extents, options);
  buffer<std::byte> memory(other.exec, plan.bytes());
  std::fill(memory.begin(), memory.end(), std::byte{0xa5});
  other.exec.memory = memory_handle(counted);
  other.cache = minicache(other.exec, other.extents, options, workspace(plan, memory));
  CHECK(counted.allocations() == 0);
  other.exec.memory = {};
  other.append(data, 0, 200);
  for (int layer = 0; layer < model.cache.layers(); ++layer) {
    CHECK(other.restored(layer, key_part, 200) == model.restored(layer, key_part, 200));
    CHECK(other.restored(layer, value_part, 200) == model.restored(layer, value_part, 200));
  }
  CHECK(other.cache.wait_for_statistics(other.exec, other.sequences()).reserved == plan.bytes());
  workspace_plan const empty("none");
  CHECK_THROWS_WITH(minicache(other.exec, other.extents, options, workspace(empty, memory)),
                    "cross_layer_cache: the workspace is of a plan of 0 bytes but 3 parts of 3 slots and 20 blocks "
                    "need " +
                        std::to_string(plan.bytes()));
}

TEST_CASE("a cache is of one layer unless it is said how layers are kept", "[host]") {
  cpu const exec{.threads = 1};
  cache_extents const extents{1, 64, 1, 1, channels};
  minicache const cache(exec, extents);
  CHECK((cache.layers() == 1 && cache.layers_of(0).layers == 1));
  CHECK(minicache::plan(exec, extents).bytes() ==
        minicache::plan(exec, extents, {.parts = {minicache::single()}}).bytes());
}

TEST_CASE("the host has the portable programs alone for a cache", "[host]") {
  small_model const model(1);
  explanation const found = model.cache.programs_of(model.exec, 2);
  REQUIRE(found.choices.size() == 2);
  CHECK(found.text() == "cross_layer_cache.append: portable program\ncross_layer_cache.attend: portable program\n");
  CHECK(found.is_fast());
  CHECK_THROWS_WITH(model.cache.programs_of(model.exec, 3), contains("part 3 is none of 3"));
}

TEST_CASE("what does not fit is refused in words that name both numbers", "[host]") {
  cpu const exec{.threads = 1};
  auto const make = [&](cache_extents const& extents, cache_layers const& part) {
    return minicache(exec, extents, {.parts = {part}});
  };
  CHECK_THROWS_WITH(make({1, 64, 1, 1, 80, 64}, minicache::pair()),
                    contains("heads have 80 channels but must have a multiple of 32"));
  CHECK_THROWS_WITH(make({1, 64, 1, 1, 64, 65}, minicache::pair()), contains("the window has 65 tokens"));
  auto five = minicache::pair();
  five.key_bits = 5;
  CHECK_THROWS_WITH(make({1, 64, 1, 1, 64, 64}, five), contains("codes have 5 bits"));
  auto three = minicache::pair();
  three.layers = 3;
  CHECK_THROWS_WITH(make({1, 64, 1, 1, 64, 64}, three), contains("pages have 3 layers"));

  auto const data = make_model(2, 100);
  small_model model(2);
  auto const plan = model.cache.plan_append(exec, {2, 100});
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  auto const inputs = data[0].inputs();
  CHECK_THROWS_WITH(model.cache.append(exec, 0, inputs, model.sequences(), {99, {}}, space),
                    contains("dimension 2 of the keys has 100 elements but needs 99"));
  CHECK_THROWS_WITH(model.cache.append(exec, 0, {}, model.sequences(), {100, {}}, space), contains("keys are null"));
  CHECK_THROWS_WITH(model.cache.append(exec, 7, inputs, model.sequences(), {100, {}}, space),
                    contains("part 7 is none of 3"));
  CHECK_THROWS_WITH(model.cache.write(exec, 0, inputs.keys[0], inputs.values[0], model.sequences(), {100, {}}),
                    contains("there are 100 new tokens but the tail has room for 64"));
  auto no_pages = model.sequences();
  no_pages.pages = {};
  CHECK_THROWS_WITH(model.cache.seal(exec, 0, no_pages, space), contains("counts of sealed pages are null"));
  std::vector<bfloat16> const queries(2 * 3 * channels);
  std::vector<float> result(2 * 3 * channels);
  head_view<bfloat16 const> const q(queries.data(), {2, 3, 1, channels});
  CHECK_THROWS_WITH(model.cache.attend(exec, 0, q, model.sequences(), {},
                                       attention_outputs<float>{{result.data(), {2, 3, 1, channels}}}, space),
                    contains("3 query heads, which are no whole number for each of 2 key heads"));

  auto forgotten = minicache::pair();
  forgotten.retention.amount = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_WITH(make({1, 64, 1, 1, 64, 64}, forgotten), contains("the amount that is retained is nan"));
  head_view<bfloat16 const> const two(queries.data(), {2, 2, 1, channels});
  attention_outputs<float> const out{{result.data(), {2, 2, 1, channels}}};
  CHECK_THROWS_WITH(model.cache.attend(exec, 0, head_view<bfloat16 const>(nullptr, {2, 2, 1, channels}),
                                       model.sequences(), {}, out, space),
                    contains("cross_layer_cache.attend: the queries have no memory"));
  CHECK_THROWS_WITH(model.cache.attend(exec, 0, two, model.sequences(), {},
                                       attention_outputs<float>{{nullptr, {2, 2, 1, channels}}}, space),
                    contains("cross_layer_cache.attend: the results have no memory"));
  CHECK_THROWS_WITH(
      model.cache.attend(exec, 0, two, model.sequences(), {.softmax_scale = forgotten.retention.amount}, out, space),
      contains("the scale of the softmax is nan"));
  array_view<std::int32_t const> const nowhere(nullptr, 2);
  CHECK_THROWS_WITH(model.cache.reset(exec, nowhere),
                    "cross_layer_cache.reset: the slots have no memory but 2 elements");
  CHECK_THROWS_WITH(model.cache.fork(exec, nowhere, nowhere),
                    contains("cross_layer_cache.fork: the slots to go on from"));
  auto no_tables = model.sequences();
  no_tables.blocks.data = nullptr;
  CHECK_THROWS_WITH(model.cache.append(exec, 0, inputs, no_tables, {100, {}}, space),
                    contains("cross_layer_cache.append: the block tables of 2 sequences are null"));
  workspace_plan const empty("none");
  CHECK_THROWS_WITH(model.cache.append(exec, 0, inputs, model.sequences(), {100, {}}, workspace(empty, memory)),
                    "cross_layer_cache.append: the workspace is of a plan of 0 bytes but 2 sequences of 100 new tokens "
                    "need " +
                        std::to_string(plan.bytes()));
  std::int64_t const huge = std::int64_t{1} << 61;
  CHECK_THROWS_WITH(model.cache.plan_attend(exec, {huge, 2, 2, 8, 1 << 20, channels}), contains("is not a size"));
  CHECK_THROWS_WITH(model.cache.plan_attend(exec, {2, 2, 2, huge, 1 << 20, channels}), contains("is not a size"));
  CHECK_THROWS_WITH(model.cache.plan_attend(exec, {2, 2, 0, 1, 64, channels}), contains("for each of 0 key heads"));
  CHECK_THROWS_WITH(model.cache.plan_attend(exec, {2, 2, 2, 1, 64, channels, 2 * channels}),
                    contains("cross_layer_cache.attend: values have "));
}

TEST_CASE("lists of sequences without memory, or for too few, are refused by their names", "[host]") {
  auto const data = make_model(2, 100);
  small_model model(2);
  cpu const& exec = model.exec;
  buffer<std::byte> memory(exec, model.cache.plan_append(exec, {2, 100}).bytes());
  workspace const space(model.cache.plan_append(exec, {2, 100}), memory);
  auto const inputs = data[0].inputs();
  array_view<std::int32_t> const nowhere(nullptr, 2);
  std::vector<std::int32_t> const one{1};
  auto const append = [&](cache_sequences const& sequences, sequence_lengths new_tokens) {
    model.cache.append(exec, 0, inputs, sequences, {100, new_tokens}, space);
  };
  auto without = model.sequences();
  without.slots = nowhere;
  CHECK_THROWS_WITH(append(without, {}), "cross_layer_cache.append: the slots have no memory but 2 elements");
  without = model.sequences();
  without.pages = nowhere;
  CHECK_THROWS_WITH(append(without, {}),
                    "cross_layer_cache.append: the counts of sealed pages have no memory but 2 elements");
  CHECK_THROWS_WITH(append(model.sequences(), nowhere),
                    "cross_layer_cache.append: the counts of new tokens have no memory but 2 elements");
  CHECK_THROWS_WITH(append(model.sequences(), one),
                    "cross_layer_cache.append: there are 1 counts of new tokens but 2 sequences");
  CHECK_THROWS_WITH(model.cache.advance(exec, model.sequences(), nowhere),
                    "cross_layer_cache.advance: the counts of pages have no memory but 2 elements");
  std::vector<float> result(2 * 2 * channels);
  std::vector<bfloat16> const queries(result.size());
  attention_outputs<float> const out{{result.data(), {2, 2, 1, channels}}};
  head_view<bfloat16 const> const q(queries.data(), {2, 2, 1, channels});
  CHECK_THROWS_WITH(model.cache.attend(exec, 0, q, model.sequences(), {}, out, space, nowhere),
                    "cross_layer_cache.attend: the lengths of queries have no memory but 2 elements");
  CHECK_THROWS_WITH(model.cache.attend(exec, 0, q, model.sequences(), {}, out, space, one),
                    "cross_layer_cache.attend: there are 1 lengths of queries but 2 sequences");
}

TEST_CASE("caches take no share of a merger that is not from 0 to 1", "[host]") {
  cpu const exec{.threads = 1};
  cache_extents const extents{1, 64, 1, 1, 64, 64};
  for (float const share : {std::numeric_limits<float>::quiet_NaN(), -0.25F, 1.5F}) {
    CAPTURE(share);
    minicache::options_type const options{.merger = {.share = share}};
    auto const said =
        "cross_layer_cache: the share of the merger is " + std::to_string(share) + " but must be from 0 to 1";
    CHECK_THROWS_WITH(minicache::plan(exec, extents, options), said);
    CHECK_THROWS_WITH(minicache(exec, extents, options), said);
    CHECK_THROWS_AS(minicache(exec, extents, options), value_error);
  }
  for (float const share : {0.0F, 1.0F}) {
    minicache::options_type const options{.merger = {.share = share}};
    CHECK_NOTHROW(minicache(exec, extents, options));
  }
}
