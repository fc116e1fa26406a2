// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A cache of three layers on any executor, with lists of sequences that a test writes itself; and the bytes in its
/// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <tessera/algorithm/paged_cache/saved_cache.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/minicache.hpp>

#include "support/cache_problem.hpp"

namespace tessera_test {

/// Lists of two sequences, as a call takes them.
struct cache_lists {
  static constexpr std::int64_t table = 4;  ///< pages of a sequence

  std::vector<std::int32_t> blocks{0, 1, 2, -1, 5, 6, 7, -1};
  std::vector<std::int32_t> slots{0, 1};
  std::vector<std::int32_t> lengths{0, 0};
  std::vector<std::int32_t> pages{0, 0};
  std::vector<std::int32_t> fresh{0, 0};

  /// The same lists with an empty second sequence.
  cache_lists without_second() const {
    cache_lists made = *this;
    made.lengths[1] = made.pages[1] = made.fresh[1] = 0;
    return made;
  }
};

/// Keys and values of a single layer and of a pair.
struct listed_tokens {
  layer_pair<bfloat16> part[2];

  listed_tokens(std::int64_t tokens, std::int64_t channels, std::uint64_t seed = 1)
      : part{make_layer_pair<bfloat16>(2, 2, tokens, channels, 0.5, seed),
             make_layer_pair<bfloat16>(2, 2, tokens, channels, 0.5, seed + 17)} {}
};

/// The bits of codes of keys and of values.
struct page_bits {
  int keys = 4;
  int values = 4;
};

/// A cache of two parts with lists of sequences. Cache: a cross_layer_cache of bfloat16.
template <class Executor, class Cache = minicache>
class listed_cache {
 public:
  static constexpr std::int64_t heads = 2;
  static constexpr std::int64_t query_heads = 4;
  static constexpr std::int64_t window = 64;
  static constexpr std::int64_t most_tokens = 640;
  static constexpr int parts = 2;

  Executor exec;
  cache_extents extents;
  Cache cache;

  listed_cache(Executor const& on, std::int64_t channels,
               retain_most_different rule = retain_most_different::angle(1.5F), page_bits bits = {})
      : exec(on),
        extents{3, most_tokens, 12, heads, channels, window},
        cache(exec, extents, {.parts = layers_by(rule, bits)}) {
    for (int part = 0; part < parts; ++part) {  // memory that nobody writes is the same in all caches
      auto const& memory = cache.memory(part);
      fill(memory.pages, memory.page_bytes(extents.blocks));
      fill(memory.tail, memory.tail_values(extents.slots) * 2);
      fill(memory.rows, memory.row_values(extents.slots) * 2);
    }
    exec.wait();
  }

  /// Appends new tokens of all layers; the first token of each sequence is number `first` in `from`.
  void append(cache_lists const& lists, listed_tokens const& from, std::int64_t first, std::int64_t tokens) {
    buffer<std::byte> memory(exec, cache.plan_append(exec, {2, tokens}).bytes());
    workspace const space(cache.plan_append(exec, {2, tokens}), memory);
    on_lists(lists, [&, this](cache_sequences const& sequences, sequence_lengths fresh) {
      for (int part = 0; part < parts; ++part) {
        sent const heads_of(*this, from.part[part], first, tokens);
        cache.append(exec, part, heads_of.inputs(), sequences, {tokens, fresh}, space);
        wait();
      }
    });
    complain();
  }
  void write(cache_lists const& lists, listed_tokens const& from, std::int64_t first, std::int64_t tokens) {
    on_lists(lists, [&, this](cache_sequences const& sequences, sequence_lengths fresh) {
      for (int layer = 0; layer < 3; ++layer) {
        int const side = cache.side_of(layer);
        sent const heads_of(*this, from.part[cache.part_of(layer)], first, tokens);
        cache.write(exec, layer, heads_of.inputs().keys[side], heads_of.inputs().values[side], sequences,
                    {tokens, fresh});
        wait();
      }
    });
    complain();
  }
  void seal(cache_lists const& lists) {
    buffer<std::byte> memory(exec, cache.plan_seal(exec, 2).bytes());
    workspace const space(cache.plan_seal(exec, 2), memory);
    on_lists(lists, [&, this](cache_sequences const& sequences, sequence_lengths) {
      for (int part = 0; part < parts; ++part) {
        cache.seal(exec, part, sequences, space);
      }
      wait();
    });
    complain();
  }
  /// Attends; `found` gets results and then log-sum-exps, sequence after sequence, whether the call throws or not.
  void attend(cache_lists const& lists, int layer, std::vector<float>& found) {
    std::int64_t const values = 2 * query_heads * extents.channels;
    auto const queries = to_exec(attention_samples<bfloat16>(testing::gauss{.sigma = 1.5}, 7, 1, values));
    buffer<float> result = to_exec(std::vector<float>(as_size(values + 2 * query_heads), -77.0F));
    head_view<bfloat16 const> const q(queries.data(), {2, query_heads, 1, extents.channels});
    on_lists(lists, [&, this](cache_sequences const& sequences, sequence_lengths) {
      auto const plan = cache.plan_attend(exec, cache.shape_of(q, sequences));
      buffer<std::byte> memory(exec, plan.bytes());
      cache.attend(exec, layer, q, sequences, {.is_causal = true},
                   attention_outputs<float>{{result.data(), {2, query_heads, 1, extents.channels}},
                                            {result.data() + values, {2, query_heads, 1}}},
                   workspace(plan, memory));
      wait();
    });
    found = detail::fetched(exec, static_cast<float const*>(result.data()), result.size());
    complain();
  }
  /// Restores keys and then values, sequence x head x token x channel; `found` keeps -77 where nothing is written.
  void restore(cache_lists const& lists, int layer, std::int64_t tokens, std::vector<float>& found) {
    std::int64_t const values = 2 * heads * tokens * extents.channels;
    buffer<float> both = to_exec(std::vector<float>(as_size(2 * values), -77.0F));
    on_lists(lists, [&, this](cache_sequences const& sequences, sequence_lengths) {
      cache.restore(exec, layer, sequences, head_view<float>(both.data(), {2, heads, tokens, extents.channels}),
                    head_view<float>(both.data() + values, {2, heads, tokens, extents.channels}));
      wait();
    });
    found = detail::fetched(exec, static_cast<float const*>(both.data()), both.size());
    complain();
  }
  std::vector<std::byte> saved(cache_lists const& lists, std::int64_t which) {
    std::vector<std::byte> found;
    on_lists(lists, [&, this](cache_sequences const& sequences, sequence_lengths) {
      found = save_cache(exec, cache, sequences, which);
    });
    return found;
  }
  cache_bytes statistics(cache_lists const& lists) {
    cache_bytes found;
    on_lists(lists, [&, this](cache_sequences const& sequences, sequence_lengths) {
      found = cache.wait_for_statistics(exec, sequences);
    });
    return found;
  }
  void fork(std::int32_t from, std::int32_t to) {
    auto const slots = to_exec(std::vector<std::int32_t>{from, to});
    cache.fork(exec, {slots.data(), 1}, {slots.data() + 1, 1});
    exec.wait();
  }
  void reset(std::int32_t slot) {
    auto const slots = to_exec(std::vector<std::int32_t>{slot});
    cache.reset(exec, slots.view());
    exec.wait();
  }
  std::vector<float> thresholds(int part) const {
    return detail::fetched(exec, static_cast<float const*>(cache.memory(part).thresholds), 2 * heads * extents.slots);
  }

  /// All bytes of the cache, without those of one slot and three blocks if `has_second` is false.
  std::vector<std::byte> state(bool has_second) const {
    std::vector<std::byte> all;
    for_each_region(has_second, [&, this](void const* data, std::int64_t bytes) { add(all, data, bytes); });
    return all;
  }
  /// Makes all bytes of the cache those of another one, which state(true) gave.
  void set_state(std::vector<std::byte> const& all) {
    std::byte const* next = all.data();
    for_each_region(true, [&, this](void* data, std::int64_t bytes) {
      exec.copy(array_view<std::byte const>(next, bytes), array_view<std::byte>(static_cast<std::byte*>(data), bytes));
      next += bytes;
    });
    exec.wait();
  }

 private:
  template <class Function>
  void for_each_region(bool has_second, Function&& function) const {
    for (int part = 0; part < parts; ++part) {
      auto const& m = cache.memory(part);
      for (std::int64_t block = 0; block < extents.blocks; ++block) {
        bool const is_second = block >= 5 && block < 8;
        function(m.page(block, 0), has_second || !is_second ? m.page_bytes(1) : 0);
      }
      for (std::int64_t slot = 0; slot < extents.slots; ++slot) {
        if (has_second || slot != 1) {
          function(m.tail + slot * m.tail_values(1), m.tail_values(1) * 2);
          function(m.rows + slot * m.row_values(1), m.row_values(1) * 2);
          function(m.row_counts + slot * heads, heads * 4);
          function(m.refused_rows + slot * heads, heads * 4);
          function(m.thresholds + 2 * slot * heads, heads * 8);
        }
      }
    }
  }

  static std::vector<cache_layers> layers_by(retain_most_different rule, page_bits bits) {
    auto pair = minicache::pair();
    pair.retention = rule;
    auto single = minicache::single();
    single.key_bits = pair.key_bits = bits.keys;
    single.value_bits = pair.value_bits = bits.values;
    return {single, pair};
  }
  /// Waits, and keeps the first complaint, so that a call goes on with all layers as a captured call does.
  void wait() {
    try {
      exec.wait();
    } catch (...) {
      complaint_ = complaint_ ? complaint_ : std::current_exception();
    }
  }
  void complain() {
    if (std::exception_ptr const found = std::exchange(complaint_, nullptr)) {
      std::rethrow_exception(found);
    }
  }
  template <class U>
  buffer<U> to_exec(std::vector<U> const& list) const {
    buffer<U> made(exec, static_cast<std::int64_t>(list.size()));
    exec.copy(list, made.view());
    exec.wait();
    return made;
  }
  void fill(void* data, std::int64_t bytes) const {
    std::vector<std::byte> const rubbish(as_size(bytes), std::byte{0x3c});
    exec.copy(rubbish, array_view<std::byte>(static_cast<std::byte*>(data), bytes));
    exec.wait();
  }
  void add(std::vector<std::byte>& to, void const* data, std::int64_t bytes) const {
    auto const found = detail::fetched(exec, static_cast<std::byte const*>(data), bytes);
    to.insert(to.end(), found.begin(), found.end());
  }

  /// Keys and values in the executor's memory.
  struct sent {
    layer_pair<bfloat16> const& host;
    std::int64_t first;
    std::int64_t tokens;
    std::vector<buffer<bfloat16>> lists;

    sent(listed_cache const& of, layer_pair<bfloat16> const& from, std::int64_t begin, std::int64_t count)
        : host(from), first(begin), tokens(count) {
      for (auto const& layer : from.part) {
        lists.push_back(of.to_exec(layer[0]));
        lists.push_back(of.to_exec(layer[1]));
      }
    }
    head_view<bfloat16 const> heads_of(std::size_t list) const {
      head_view<bfloat16 const> const all(lists[list].data(), {host.sequences, host.heads, host.tokens, host.channels});
      return all.slice(2, first, tokens);
    }
    cache_inputs<bfloat16> inputs() const { return {{heads_of(0), heads_of(2)}, {heads_of(1), heads_of(3)}}; }
  };

  template <class Use>
  void on_lists(cache_lists const& lists, Use const& use) const {
    auto const blocks = to_exec(lists.blocks);
    auto const slots = to_exec(lists.slots);
    auto const lengths = to_exec(lists.lengths);
    auto const pages = to_exec(lists.pages);
    auto const fresh = to_exec(lists.fresh);
    use(cache_sequences{{blocks.data(), {2, cache_lists::table}}, slots.view(), lengths.view(), pages.view()},
        fresh.view());
  }

  std::exception_ptr complaint_;
};

/// The complaint of a call; "" if there is none.
template <class Call>
std::string complaint_of(Call const& call) {
  try {
    call();
  } catch (shape_error const& error) {
    return std::string("shape_error: ") + error.what();
  } catch (value_error const& error) {
    return std::string("value_error: ") + error.what();
  }
  return "";
}

}  // namespace tessera_test
