// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A prompt that went through a compressed cache: what cross_layer_cache restores of its keys and values, and the bytes
/// that the cache takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/minicache.hpp>

#include "../support/failure.hpp"
#include "kept_prompt.hpp"

namespace tessera_examples {

struct compressed_prompt {
  kept_prompt restored;
  std::int64_t bytes = 0;  ///< used by the cache
};

/// Layers that are each kept by themselves.
inline std::vector<tessera::cache_layers> single_layers(int layers, int key_bits, int value_bits) {
  tessera::cache_layers kept = tessera::minicache::single();
  kept.key_bits = key_bits;
  kept.value_bits = value_bits;
  return std::vector<tessera::cache_layers>(static_cast<std::size_t>(layers), kept);
}

/// Single layers before `first`, and pairs of neighbours from there on, all in 4 bits.
inline std::vector<tessera::cache_layers> merged_layers(int layers, int first) {
  require(exit_code::usage, first <= layers && (layers - first) % 2 == 0, "layers ", first, " to ", layers - 1,
          " are no pairs");
  std::vector<tessera::cache_layers> parts(static_cast<std::size_t>(first), tessera::minicache::single());
  parts.resize(parts.size() + static_cast<std::size_t>((layers - first) / 2), tessera::minicache::pair());
  return parts;
}

/// Appends a prompt to all parts of a cache, with keys after their rotation.
inline void append_prompt(tessera::cpu const& exec, tessera::minicache const& cache, kept_prompt const& prompt,
                          tessera::cache_sequences const& sequence, tessera::workspace const& space) {
  std::size_t layer = 0;
  for (int part = 0; part < cache.parts(); ++part) {
    tessera::cache_inputs<bfloat16> inputs;
    for (int side = 0; side < cache.layers_of(part).layers; ++side, ++layer) {
      inputs.keys[side] = prompt.layers[layer].rotated_keys.view();
      inputs.values[side] = prompt.layers[layer].values.view();
    }
    cache.append(exec, part, inputs, sequence, {.tokens = prompt.tokens()}, space);
  }
}

/// Puts a prompt into a cache without a window, so that every page of 64 tokens is compressed, and takes it out again.
inline compressed_prompt compress_prompt(tessera::cpu const& exec, kept_prompt const& prompt,
                                         std::vector<tessera::cache_layers> const& parts) {
  std::int64_t const tokens = prompt.tokens();
  auto const shape = prompt.layers.front().values.view();
  std::int64_t const blocks = tessera::divide_up(tokens, std::int64_t{64});
  tessera::cache_extents const extents{.slots = 1,
                                       .tokens = tokens,
                                       .blocks = blocks,
                                       .heads = shape.extent(1),
                                       .channels = shape.extent(3),
                                       .window = 0};
  tessera::minicache const cache(exec, extents, {.parts = parts});
  std::vector<std::int32_t> table(static_cast<std::size_t>(blocks));
  std::iota(table.begin(), table.end(), 0);
  auto const length = static_cast<std::int32_t>(tokens);
  std::int32_t pages = 0;
  tessera::cache_sequences const sequence{
      .blocks = {table.data(), {1, blocks}}, .lengths = {&length, 1}, .pages = {&pages, 1}, .count = 1};
  auto const plan = cache.plan_append(exec, {1, tokens});
  tessera::buffer<std::byte> memory(exec, plan.bytes());
  append_prompt(exec, cache, prompt, sequence, tessera::workspace(plan, memory));
  cache.advance(exec, sequence, {&pages, 1}, tokens);

  compressed_prompt result{prompt, cache.wait_for_statistics(exec, sequence).used()};
  for (int layer = 0; layer < cache.layers(); ++layer) {
    kept_layer& to = result.restored.layers[static_cast<std::size_t>(layer)];
    cache.restore(exec, layer, sequence, to.rotated_keys.view(), to.values.view());
  }
  exec.wait();
  return result;
}

}  // namespace tessera_examples
