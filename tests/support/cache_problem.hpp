// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Compressed caches for tests: memory for one layer or a pair, keys and values, and the results that a cache should
/// give.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/algorithm/paged_cache/paged_cache.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/merge/slerp.hpp>
#include <tessera/testing/generators.hpp>

#include "support/attention_reference.hpp"

namespace tessera_test {

using namespace tessera;

/// Keys and values of two neighbouring layers, sequence x head x token x channel.
template <class T>
struct layer_pair {
  std::int64_t sequences;
  std::int64_t heads;
  std::int64_t tokens;
  std::int64_t channels;
  std::vector<T> part[2][2];  ///< layer, key or value

  head_view<T const> heads_of(int layer, int which, std::int64_t first = 0, std::int64_t count = -1) const {
    head_view<T const> const all(part[layer][which].data(), {sequences, heads, tokens, channels});
    return all.slice(2, first, count < 0 ? tokens - first : count);
  }
  cache_inputs<T> inputs(std::int64_t first = 0, std::int64_t count = -1) const {
    return {{heads_of(0, 0, first, count), heads_of(1, 0, first, count)},
            {heads_of(0, 1, first, count), heads_of(1, 1, first, count)}};
  }
};

/// Makes a pair whose directions are `angle` apart on the average and whose lengths differ by a factor of 1.22. One
/// token in 50 has nearly opposite directions.
template <class T>
layer_pair<T> make_layer_pair(std::int64_t sequences, std::int64_t heads, std::int64_t tokens, std::int64_t channels,
                              double angle = 0.5, std::uint64_t seed = 1) {
  layer_pair<T> made{sequences, heads, tokens, channels, {}};
  std::int64_t const count = sequences * heads * tokens * channels;
  testing::gauss const normal;
  for (int which = 0; which < 2; ++which) {
    std::uint64_t const base = seed + 100 * static_cast<std::uint64_t>(which);
    for (std::int64_t i = 0; i < count; ++i) {
      auto const at = static_cast<std::uint64_t>(i);
      std::uint64_t const token = at / static_cast<std::uint64_t>(channels);
      bool const is_outlier = testing::hash(base + 3, token) % 50 == 0;
      double const turn = is_outlier ? 2.2 : angle * (1 + 0.2 * static_cast<double>(normal.value(base + 2, token)));
      double const away = i % channels % 31 == 7 ? 3.0 : 0.0;  // some channels lie away from zero
      double const u = away + static_cast<double>(normal.value(base, at));
      double const v = static_cast<double>(normal.value(base + 1, at));
      double const length = std::exp(0.3 * static_cast<double>(normal.value(base + 4, token)));
      made.part[0][which].push_back(store<T>(static_cast<float>(length * u)));
      made.part[1][which].push_back(
          store<T>(static_cast<float>(1.22 * length * (std::cos(turn) * u + std::sin(turn) * v))));
    }
  }
  return made;
}

/// Memory of a cache of a pair or a layer, full of garbage, for `slots` sequences of up to `tokens` tokens.
template <class T>
struct cache_problem {
  cache_memory<T> memory;
  std::int64_t slots;
  std::vector<std::byte> pages;
  std::vector<T> tail;
  std::vector<T> rows;
  std::vector<std::uint32_t> row_counts;
  std::vector<std::uint32_t> refused;
  std::vector<float> thresholds;
  std::vector<std::int32_t> blocks;
  std::vector<std::int32_t> lengths;
  std::int64_t most_pages;

  cache_problem(cache_page_format format, std::int64_t heads, std::int64_t slot_count, std::int64_t tokens,
                std::int64_t window = 64, std::int64_t capacity = 64)
      : memory{format, heads, window, capacity, slot_count, tokens, 0, {}, {}, {}, {}, {}, {}},
        slots(slot_count),
        most_pages(divide_up(tokens, std::int64_t{64})) {
    std::int64_t const count = slots * most_pages;
    memory.block_count = count;
    pages.assign(as_size(memory.page_bytes(count) + 64), std::byte{0xa5});
    tail.assign(as_size(memory.tail_values(slots)), T{0x7fff});
    rows.assign(as_size(memory.row_values(slots)), T{0x7fff});
    row_counts.assign(as_size(slots * heads), 0);
    refused.assign(as_size(slots * heads), 0);
    thresholds.assign(as_size(2 * slots * heads), std::numeric_limits<float>::quiet_NaN());
    lengths.assign(as_size(slots), 0);
    for (std::int64_t i = 0; i < count; ++i) {  // in descending order, so that nothing may rely on neighbours
      blocks.push_back(static_cast<std::int32_t>(count - 1 - i));
    }
    std::size_t const beyond = reinterpret_cast<std::uintptr_t>(pages.data()) % 32;
    memory.pages = pages.data() + (32 - beyond) % 32;
    memory.tail = tail.data();
    memory.rows = rows.data();
    memory.row_counts = row_counts.data();
    memory.refused_rows = refused.data();
    memory.thresholds = thresholds.data();
  }
  /// The bytes of all pages, without those before them that make them begin at a multiple of 32.
  std::vector<std::byte> page_bytes() const {
    return {memory.pages, memory.pages + memory.page_bytes(memory.block_count)};
  }

  cache_problem(cache_problem const&) = delete;
  cache_problem& operator=(cache_problem const&) = delete;

  cache_sequences sequences() const { return {{blocks.data(), {slots, most_pages}}, {}, lengths, {}, slots}; }

  template <class Merger = slerp_merger<float>, class Executor>
  void append(Executor const& exec, cache_inputs<T> const& inputs, retain_most_different rule = {},
              Merger const& merger = {}, bool whole_tokens = false) {
    std::int64_t const count = inputs.keys[0].extent(2);
    cache_append_regions const regions("cache_problem", slots, count, memory.heads);
    buffer<std::byte> memory_for_it(exec, regions.plan.bytes());
    for (std::byte& byte : memory_for_it) {
      byte = std::byte{0xa5};
    }
    workspace const space(regions.plan, memory_for_it);
    for (std::int32_t& length : lengths) {
      length += static_cast<std::int32_t>(count);
    }
    cache_append_call<Merger, T> const call{merger,
                                            rule,
                                            whole_tokens,
                                            {memory, inputs, sequences(), count, regions.pages},
                                            regions.rows_in(space),
                                            regions.marks_in(space)};
    tessera::run(exec, call);
    exec.wait();
  }

  page_reader page(std::int64_t slot, std::int64_t number, std::int64_t head, int layer = 0) const {
    return {memory.format, memory.page(blocks[as_size(slot * most_pages + number)], head), layer};
  }

  /// The keys or values that the cache restores.
  template <class Result>
  std::vector<Result> restored(int layer, int which, std::int64_t tokens) const {
    std::vector<Result> both[2];
    std::int64_t const channels = memory.format.channels;
    for (auto& list : both) {
      list.assign(as_size(slots * memory.heads * tokens * channels), store<Result>(-77.0F));
    }
    cpu const exec{.threads = 1};
    tessera::run(exec, cache_restore_call<T, Result>{memory,
                                                     sequences(),
                                                     layer,
                                                     {both[0].data(), {slots, memory.heads, tokens, channels}},
                                                     {both[1].data(), {slots, memory.heads, tokens, channels}}});
    return both[which];
  }
};

}  // namespace tessera_test
