// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "text_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/algorithm/attention/dense_attention.hpp>
#include <tessera/sage_attention2.hpp>

#include "kept_memories.hpp"
#include "shadow_layer.hpp"

namespace tessera_examples {
namespace {

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
