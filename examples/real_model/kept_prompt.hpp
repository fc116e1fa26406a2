// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The keys and values of a prompt in all layers, and attention over them and the tokens that follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/algorithm/attention/dense_attention.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>

#include "transformer.hpp"

namespace tessera_examples {

/// Heads in memory of their own, head after head: heads x tokens x channels.
class own_heads {
 public:
  own_heads() = default;
  own_heads(std::int64_t heads, std::int64_t tokens, std::int64_t channels)
      : heads_(heads), tokens_(tokens), channels_(channels) {
    values_.resize(static_cast<std::size_t>(heads * tokens * channels));
  }
  /// A copy.
  explicit own_heads(head_view<bfloat16 const> from) : own_heads(from.extent(1), from.extent(2), from.extent(3)) {
    put(0, from);
  }

  [[nodiscard]] head_view<bfloat16> view() { return {values_.data(), {1, heads_, tokens_, channels_}}; }
  [[nodiscard]] head_view<bfloat16 const> view() const { return {values_.data(), {1, heads_, tokens_, channels_}}; }
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }

  /// Copies tokens to the places from `first` on.
  void put(std::int64_t first, head_view<bfloat16 const> from) {
    for (std::int64_t head = 0; head < heads_; ++head) {
      for (std::int64_t token = 0; token < from.extent(2); ++token) {
        for (std::int64_t channel = 0; channel < channels_; ++channel) {
          view()(0, head, first + token, channel) = from(0, head, token, channel);
        }
      }
    }
  }

 private:
  std::int64_t heads_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t channels_ = 0;
  std::vector<bfloat16> values_;
};

/// A layer's part of a prompt.
struct kept_layer {
  own_heads keys;          ///< before their rotation by the position
  own_heads rotated_keys;  ///< after it
  own_heads values;
};

/// All layers of a prompt.
struct kept_prompt {
  std::vector<kept_layer> layers;

  [[nodiscard]] std::int64_t tokens() const { return layers.front().values.tokens(); }
  /// Bytes of keys and values in 16 bits.
  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t elements = 0;
    for (kept_layer const& layer : layers) {
      elements += layer.rotated_keys.view().size() + layer.values.view().size();
    }
    return elements * static_cast<std::int64_t>(sizeof(bfloat16));
  }
};

/// Causal attention of the last tokens of a text, by `Method`: dense_attention, sage_attention2, ...
template <class Method>
void attend_by(tessera::cpu const& exec, head_view<bfloat16 const> queries, head_view<bfloat16 const> keys,
               head_view<bfloat16 const> values, head_view<bfloat16> result) {
  tessera::attention_shape const shape{
      1, queries.extent(1), keys.extent(1), queries.extent(2), keys.extent(2), keys.extent(3)};
  auto const plan = Method::plan_forward(exec, shape);
  tessera::buffer<std::byte> memory(exec, plan.bytes());
  Method::forward(exec, tessera::attention_inputs<bfloat16>{queries, keys, values}, {.is_causal = true},
                  tessera::attention_outputs<bfloat16>{result}, tessera::workspace(plan, memory));
}

/// Attention of tokens over themselves alone, by `Method`: for a whole text at once.
template <class Method>
attention_of_layer attention_within(tessera::cpu const& exec) {
  return [exec](layer_heads const& in) {
    attend_by<Method>(exec, in.rotated_queries, in.rotated_keys, in.values, in.result);
  };
}

/// Attention of tokens over themselves, whose keys and values are kept for what follows.
inline attention_of_layer attention_that_keeps(tessera::cpu const& exec, kept_prompt& kept) {
  return [exec, &kept](layer_heads const& in) {
    kept.layers.push_back({own_heads(in.keys), own_heads(in.rotated_keys), own_heads(in.values)});
    attend_by<tessera::dense_attention>(exec, in.rotated_queries, in.rotated_keys, in.values, in.result);
  };
}

/// Attention of tokens over a prompt and themselves, exact but for what was done to the prompt.
inline attention_of_layer attention_after(tessera::cpu const& exec, kept_prompt const& prompt) {
  return [exec, &prompt](layer_heads const& in) {
    kept_layer const& before = prompt.layers[static_cast<std::size_t>(in.layer)];
    std::int64_t const all = in.first + in.values.extent(2);
    own_heads keys(in.keys.extent(1), all, in.keys.extent(3));
    own_heads values(in.keys.extent(1), all, in.keys.extent(3));
    keys.put(0, before.rotated_keys.view());
    keys.put(in.first, in.rotated_keys);
    values.put(0, before.values.view());
    values.put(in.first, in.values);
    attend_by<tessera::dense_attention>(exec, in.rotated_queries, keys.view(), values.view(), in.result);
  };
}

}  // namespace tessera_examples
