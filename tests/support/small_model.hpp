// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A model of four layers with a compressed cache, two single layers and a pair, and the steps by which an engine uses
/// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/paged_cache/block_pool.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/minicache.hpp>

#include "support/cache_problem.hpp"

namespace tessera_test {
namespace small {

inline constexpr std::int64_t heads = 2;
inline constexpr std::int64_t channels = 64;

/// A cache of a model, with the lists that an engine keeps beside it.
struct small_model {
  cpu exec{.threads = 1};
  cache_extents extents{3, 512, 20, heads, channels, 64};
  std::vector<cache_layers> parts;
  minicache cache;
  block_pool pool{20};
  std::vector<std::int32_t> blocks;
  std::vector<std::int32_t> lengths;
  std::vector<std::int32_t> pages;
  std::int64_t count;

  explicit small_model(std::int64_t sequences, std::vector<cache_layers> const& of = default_parts())
      : parts(of),
        cache(exec, extents, {.parts = parts}),
        blocks(as_size(sequences * 8), -1),
        lengths(as_size(sequences)),
        pages(as_size(sequences)),
        count(sequences) {}

  static std::vector<cache_layers> default_parts() {
    auto single = minicache::single();
    single.key_bits = 8;
    auto pair = minicache::pair();
    pair.retention = retain_most_different::angle(1.5F);
    return {single, minicache::single(), pair};
  }

  cache_sequences sequences() const { return {{blocks.data(), {count, 8}}, {}, lengths, pages, count}; }

  /// Provides blocks for all pages that the sequence may seal once it has so many tokens.
  void provide(std::int64_t sequence, std::int64_t tokens) {
    for (std::int64_t page = 0; page < sealed_pages(tokens, extents.window); ++page) {
      std::int32_t& block = blocks[as_size(sequence * 8 + page)];
      block = block < 0 ? pool.take() : block;
    }
  }

  /// Appends tokens to all layers at once.
  void append(std::vector<layer_pair<bfloat16>> const& model, std::int64_t first, std::int64_t tokens,
              std::vector<std::int32_t> const& each = {}) {
    for (std::int64_t i = 0; i < count; ++i) {
      lengths[as_size(i)] += static_cast<std::int32_t>(each.empty() ? tokens : each[as_size(i)]);
      provide(i, lengths[as_size(i)]);
    }
    auto const plan = cache.plan_append(exec, {count, tokens});
    buffer<std::byte> memory(exec, plan.bytes());
    workspace const space(plan, memory);
    cache_tokens const added{tokens, each};
    for (int part = 0; part < cache.parts(); ++part) {
      auto inputs = model[as_size(part)].inputs(first, tokens);
      for (head_view<bfloat16 const>* of : {&inputs.keys[0], &inputs.keys[1], &inputs.values[0], &inputs.values[1]}) {
        *of = of->slice(0, 0, count);
      }
      cache.append(exec, part, inputs, sequences(), added, space);
    }
    cache.advance(exec, sequences(), pages, tokens);
  }

  /// Steps layer after layer, as a model decodes; gives the results of the last layer.
  std::vector<float> step(std::vector<layer_pair<bfloat16>> const& model, std::int64_t first, std::int64_t tokens,
                          std::vector<bfloat16> const& queries) {
    for (std::int64_t i = 0; i < count; ++i) {
      lengths[as_size(i)] += static_cast<std::int32_t>(tokens);
      provide(i, lengths[as_size(i)]);
    }
    head_view<bfloat16 const> const q(queries.data(), {count, 2 * heads, tokens, channels});
    auto const plan = cache.plan_attend(exec, cache.shape_of(q, sequences()));
    buffer<std::byte> memory(exec, plan.bytes());
    auto const seal_plan = cache.plan_seal(exec, count);
    buffer<std::byte> seal_memory(exec, seal_plan.bytes());
    std::vector<float> result(as_size(count * 2 * heads * tokens * channels));
    for (int layer = 0; layer < cache.layers(); ++layer) {
      int const part = cache.part_of(layer);
      int const side = cache.side_of(layer);
      auto const& of = model[as_size(part)];
      cache.write(exec, layer, of.heads_of(side, 0, first, tokens).slice(0, 0, count),
                  of.heads_of(side, 1, first, tokens).slice(0, 0, count), sequences(), {tokens, {}});
      attention_options options;
      options.is_causal = true;
      cache.attend(exec, layer, q, sequences(), options,
                   attention_outputs<float>{{result.data(), {count, 2 * heads, tokens, channels}}},
                   workspace(plan, memory));
      if (layer + 1 == cache.layers() || cache.part_of(layer + 1) != part) {
        cache.seal(exec, part, sequences(), workspace(seal_plan, seal_memory));
      }
    }
    cache.advance(exec, sequences(), pages, tokens);
    return result;
  }

  std::vector<float> restored(int layer, int which, std::int64_t tokens) const {
    std::vector<float> both[2];
    both[0].assign(as_size(count * heads * tokens * channels), -77.0F);
    both[1] = both[0];
    cache.restore(exec, layer, sequences(), head_view<float>(both[0].data(), {count, heads, tokens, channels}),
                  head_view<float>(both[1].data(), {count, heads, tokens, channels}));
    return both[which];
  }
};

/// Makes the keys and values of each part.
inline std::vector<layer_pair<bfloat16>> make_model(std::int64_t sequences, std::int64_t tokens) {
  std::vector<layer_pair<bfloat16>> model;
  for (std::uint64_t part = 0; part < 3; ++part) {
    model.push_back(make_layer_pair<bfloat16>(sequences, heads, tokens, channels, 0.5, 10 * part + 1));
  }
  return model;
}

}  // namespace small
}  // namespace tessera_test
