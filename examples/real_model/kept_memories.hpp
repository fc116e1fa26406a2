// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Memories that keep every token: exactly, or in the pages of a cross_layer_cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/minicache.hpp>

#include "compressed_prompt.hpp"
#include "text_memory.hpp"

namespace tessera_examples {

/// Keys and values as they are, and attention by `Method`.
template <class Method>
class exact_memory final : public text_memory {
 public:
  exact_memory(transformer const& net, std::int64_t tokens) : exec_(net.exec()) {
    model_extents const& n = net.extents();
    for (int layer = 0; layer < n.layers; ++layer) {
      keys_.emplace_back(n.key_heads, tokens, n.head_channels);
      values_.emplace_back(n.key_heads, tokens, n.head_channels);
    }
  }
  void take(kept_prompt const& prompt) override {
    for (std::size_t layer = 0; layer < keys_.size(); ++layer) {
      keys_[layer].put(0, prompt.layers[layer].rotated_keys.view());
      values_[layer].put(0, prompt.layers[layer].values.view());
    }
  }
  void attend(layer_heads const& in) override {
    tokens_ = in.first + in.values.extent(2);
    auto const layer = static_cast<std::size_t>(in.layer);
    keys_[layer].put(in.first, in.rotated_keys);
    values_[layer].put(in.first, in.values);
    attend_by<Method>(exec_, in.rotated_queries, std::as_const(keys_[layer]).view().slice(2, 0, tokens_),
                      std::as_const(values_[layer]).view().slice(2, 0, tokens_), in.result);
  }
  /// Bytes of the keys and values of all tokens so far.
  [[nodiscard]] std::int64_t bytes() const {
    auto const heads = keys_.front().view();
    std::int64_t const of_layer = 2 * heads.extent(1) * tokens_ * heads.extent(3);
    return std::ssize(keys_) * of_layer * static_cast<std::int64_t>(sizeof(bfloat16));
  }

 private:
  tessera::cpu exec_;
  std::vector<own_heads> keys_;
  std::vector<own_heads> values_;
  std::int64_t tokens_ = 0;
};

/// Keys and values in a cross_layer_cache: the prompt is appended, and later tokens are written, attended to where they
/// are, and sealed to pages when they have left the window of the newest ones.
class cached_memory final : public text_memory {
 public:
  cached_memory(transformer const& net, std::int64_t tokens, std::vector<tessera::cache_layers> parts,
                std::int64_t window = 128)
      : exec_(net.exec()),
        cache_(exec_, extents_of(net.extents(), tokens, window), {.parts = std::move(parts)}),
        blocks_(static_cast<std::size_t>(cache_.extents().blocks)) {
    std::iota(blocks_.begin(), blocks_.end(), 0);
  }
  void take(kept_prompt const& prompt) override {
    std::int64_t const tokens = prompt.tokens();
    length_ = static_cast<std::int32_t>(tokens);
    auto const plan = cache_.plan_append(exec_, {1, tokens});
    tessera::buffer<std::byte> memory(exec_, plan.bytes());
    append_prompt(exec_, cache_, prompt, sequence(), tessera::workspace(plan, memory));
    cache_.advance(exec_, sequence(), {&pages_, 1}, tokens);
  }
  void attend(layer_heads const& in) override {
    length_ = static_cast<std::int32_t>(in.first + 1);
    cache_.write(exec_, in.layer, in.rotated_keys, in.values, sequence(), {.tokens = 1});
    auto const plan = cache_.plan_attend(exec_, cache_.shape_of(in.rotated_queries, sequence()));
    tessera::buffer<std::byte> memory(exec_, plan.bytes());
    cache_.attend(exec_, in.layer, in.rotated_queries, sequence(), {.is_causal = true},
                  tessera::attention_outputs<bfloat16>{in.result}, tessera::workspace(plan, memory));
    int const part = cache_.part_of(in.layer);
    if (in.layer + 1 == cache_.layers() || cache_.part_of(in.layer + 1) != part) {
      auto const seal = cache_.plan_seal(exec_, 1);
      tessera::buffer<std::byte> seal_memory(exec_, seal.bytes());
      cache_.seal(exec_, part, sequence(), tessera::workspace(seal, seal_memory));
    }
  }
  void end_token() override { cache_.advance(exec_, sequence(), {&pages_, 1}); }
  /// Bytes that the cache has in use.
  [[nodiscard]] std::int64_t bytes() const { return cache_.wait_for_statistics(exec_, sequence()).used(); }

 private:
  static tessera::cache_extents extents_of(model_extents const& n, std::int64_t tokens, std::int64_t window) {
    return {.slots = 1,
            .tokens = tokens,
            .blocks = tessera::divide_up(tokens, std::int64_t{64}),
            .heads = n.key_heads,
            .channels = n.head_channels,
            .window = window};
  }
  [[nodiscard]] tessera::cache_sequences sequence() const {
    return {.blocks = {blocks_.data(), {1, std::ssize(blocks_)}},
            .lengths = {&length_, 1},
            .pages = {&pages_, 1},
            .count = 1};
  }

  tessera::cpu exec_;
  tessera::minicache cache_;
  std::vector<std::int32_t> blocks_;
  std::int32_t length_ = 0;
  std::int32_t pages_ = 0;
};

}  // namespace tessera_examples
