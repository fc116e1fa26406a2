// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "text_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tessera/algorithm/attention/dense_attention.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/minicache.hpp>
#include <tessera/sage_attention2.hpp>

#include "compressed_prompt.hpp"
#include "shadow_layer.hpp"

namespace tessera_examples {
namespace {

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
    auto const layer = static_cast<std::size_t>(in.layer);
    keys_[layer].put(in.first, in.rotated_keys);
    values_[layer].put(in.first, in.values);
    std::int64_t const tokens = in.first + in.values.extent(2);
    attend_by<Method>(exec_, in.rotated_queries, std::as_const(keys_[layer]).view().slice(2, 0, tokens),
                      std::as_const(values_[layer]).view().slice(2, 0, tokens), in.result);
  }

 private:
  tessera::cpu exec_;
  std::vector<own_heads> keys_;
  std::vector<own_heads> values_;
};

/// Keys and values in a cross_layer_cache: the prompt is appended, and later tokens are written, attended to where they
/// are, and sealed to pages when they have left the window of 128.
class cached_memory final : public text_memory {
 public:
  cached_memory(transformer const& net, std::int64_t tokens, std::vector<tessera::cache_layers> parts)
      : exec_(net.exec()),
        cache_(exec_, extents_of(net.extents(), tokens), {.parts = std::move(parts)}),
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

 private:
  static tessera::cache_extents extents_of(model_extents const& n, std::int64_t tokens) {
    return {.slots = 1,
            .tokens = tokens,
            .blocks = tessera::divide_up(tokens, std::int64_t{64}),
            .heads = n.key_heads,
            .channels = n.head_channels};
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

/// ShadowKV: a cache for each layer.
class shadow_memory final : public text_memory {
 public:
  shadow_memory(transformer const& net, std::int64_t tokens, std::int64_t chunks)
      : plan_(plan_shadow_layer(net, tokens, chunks)) {
    for (int layer = 0; layer < net.extents().layers; ++layer) {
      layers_.push_back(std::make_unique<shadow_layer>(net, plan_));
    }
  }
  void take(kept_prompt const& prompt) override {
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      layers_[layer]->take(prompt.layers[layer]);
    }
  }
  void attend(layer_heads const& in) override { layers_[static_cast<std::size_t>(in.layer)]->attend(in); }

 private:
  shadow_layer::plan_type plan_;
  std::vector<std::unique_ptr<shadow_layer>> layers_;
};

template <class Method>
make_memory exactly() {
  return
      [](transformer const& net, std::int64_t tokens) { return std::make_unique<exact_memory<Method>>(net, tokens); };
}

make_memory cached(std::vector<tessera::cache_layers> parts) {
  return
      [=](transformer const& net, std::int64_t tokens) { return std::make_unique<cached_memory>(net, tokens, parts); };
}

make_memory shadowed(std::int64_t chunks) {
  return [=](transformer const& net, std::int64_t tokens) {
    return std::make_unique<shadow_memory>(net, tokens, chunks > 0 ? chunks : tokens);
  };
}

}  // namespace

make_memory memory_of_method(std::string const& name, int layers) {
  std::vector<std::pair<std::string, make_memory>> const all{
      {"exact", exactly<tessera::dense_attention>()},
      {"8bit", cached(single_layers(layers, 8, 8))},
      {"4bit", cached(single_layers(layers, 4, 4))},
      {"3bit", cached(single_layers(layers, 3, 3))},
      {"2bit", cached(single_layers(layers, 2, 2))},
      {"k4v2", cached(single_layers(layers, 4, 2))},
      {"merged", cached(tessera::minicache::half_merged(layers))},
      {"shadow_all_chunks", shadowed(0)},
      {"shadow_32_chunks", shadowed(32)},
      {"shadow_8_chunks", shadowed(8)},
      {"sage_int8", exactly<tessera::sage_attention2>()},
      {"sage_int4", exactly<tessera::sage_attention2_int4>()}};
  for (auto const& [known, memory] : all) {
    if (known == name) {
      return memory;
    }
  }
  throw failure(exit_code::usage, "no text is continued by " + shown(name) + "; --help lists what can");
}

}  // namespace tessera_examples
