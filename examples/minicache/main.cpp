// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The history of a compressed cache: prompt, generated tokens, saving and loading, on three layers of a real model.
///
/// Layer 14 is kept as a single layer in 4 bits. Layers 15 and 16 share directions, though neighbouring layers of this
/// model have little in common. minicache.hpp says when to merge; the errors here show that this model's layers should
/// not be merged.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <tessera/algorithm/paged_cache/saved_cache.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/minicache.hpp>

#include "../support/failure.hpp"
#include "../support/real_layers.hpp"
#include "../support/run_example.hpp"
#include "../support/text_table.hpp"

namespace tessera_examples {
namespace {

using tessera::bfloat16;
using tessera::buffer;
using tessera::cpu;
using tessera::head_view;
using tessera::workspace;
using cache_type = tessera::minicache;

/// One sequence: its blocks, its length, and how many of its pages are compressed.
struct one_sequence {
  std::vector<std::int32_t> blocks;
  std::int32_t length = 0;
  std::int32_t pages = 0;

  [[nodiscard]] tessera::cache_sequences view() const {
    return {
        .blocks = {blocks.data(), {1, std::ssize(blocks)}}, .lengths = {&length, 1}, .pages = {&pages, 1}, .count = 1};
  }
};

/// Tokens `first` to `first` + `count` - 1 of heads x tokens x channels, as tokens of one sequence.
head_view<bfloat16 const> part_of(tessera::view<bfloat16 const, 3> heads, std::int64_t first, std::int64_t count) {
  return head_view<bfloat16 const>(heads.data, {1, heads.extent(0), heads.extent(1), heads.extent(2)})
      .slice(2, first, count);
}

void add_prompt(cpu const& exec, cache_type const& cache, real_layers const& data, one_sequence& sequence) {
  std::int64_t const prompt = data.tokens - data.queries;
  auto const plan = cache.plan_append(exec, {1, prompt});
  buffer<std::byte> memory(exec, plan.bytes());
  sequence.length = static_cast<std::int32_t>(prompt);
  for (int layer = 0; layer < cache.layers(); layer += cache.layers_of(cache.part_of(layer)).layers) {
    tessera::cache_inputs<bfloat16> in;
    for (int side = 0; side < cache.layers_of(cache.part_of(layer)).layers; ++side) {
      real_layer const& from = data.layers[static_cast<std::size_t>(layer + side)];
      in.keys[side] = part_of(data.keys_in(from.rotated_keys), 0, prompt);
      in.values[side] = part_of(data.keys_in(from.values), 0, prompt);
    }
    cache.append(exec, cache.part_of(layer), in, sequence.view(), {.tokens = prompt}, workspace(plan, memory));
  }
  cache.advance(exec, sequence.view(), {&sequence.pages, 1}, prompt);
}

/// Adds a generated token, with its keys, values and queries of all layers; `results`: for each layer, query heads x
/// channels.
void add_token(cpu const& exec, cache_type const& cache, real_layers const& data, one_sequence& sequence,
               std::vector<std::vector<float>>& results) {
  std::int64_t const token = sequence.length++;
  auto const plan = cache.plan_seal(exec, 1);
  buffer<std::byte> memory(exec, plan.bytes());
  for (int layer = 0; layer < cache.layers(); ++layer) {
    real_layer const& from = data.layers[static_cast<std::size_t>(layer)];
    cache.write(exec, layer, part_of(data.keys_in(from.rotated_keys), token, 1),
                part_of(data.keys_in(from.values), token, 1), sequence.view(), {.tokens = 1});
    auto const queries = part_of(data.queries_in(from.rotated_queries), token - (data.tokens - data.queries), 1);
    auto const attention = cache.plan_attend(exec, cache.shape_of(queries, sequence.view()));
    buffer<std::byte> attention_memory(exec, attention.bytes());
    std::vector<float>& result = results[static_cast<std::size_t>(layer)];
    result.resize(static_cast<std::size_t>(data.query_heads * data.channels));
    tessera::attention_outputs<float> const out{{result.data(), {1, data.query_heads, 1, data.channels}}};
    cache.attend(exec, layer, queries, sequence.view(), {.is_causal = true}, out,
                 workspace(attention, attention_memory));
    if (layer + 1 == cache.layers() || cache.part_of(layer + 1) != cache.part_of(layer)) {
      cache.seal(exec, cache.part_of(layer), sequence.view(), workspace(plan, memory));
    }
  }
  cache.advance(exec, sequence.view(), {&sequence.pages, 1});
  exec.wait();
}

/// All keys and values of a layer, as the cache restores them.
std::vector<float> restored(cpu const& exec, cache_type const& cache, int layer, one_sequence const& sequence) {
  tessera::cache_extents const& n = cache.extents();
  std::int64_t const elements = n.heads * sequence.length * n.channels;
  std::vector<float> both(static_cast<std::size_t>(2 * elements));
  auto const heads = [&](float* first) { return head_view<float>(first, {1, n.heads, sequence.length, n.channels}); };
  cache.restore(exec, layer, sequence.view(), heads(both.data()), heads(both.data() + elements));
  exec.wait();
  return both;
}

/// Saves the sequence, loads it into another cache, and compares.
void save_and_load(cpu const& exec, cache_type const& cache, one_sequence const& sequence) {
  auto const saved = tessera::save_cache(exec, cache, sequence.view(), 0);
  auto const info = tessera::inspect_saved_cache(saved.data(), std::ssize(saved));
  std::vector<tessera::cache_layers> parts;
  for (int part = 0; part < cache.parts(); ++part) {
    parts.push_back(cache.layers_of(part));
  }
  cache_type const other(exec, cache.extents(), {.parts = parts});
  one_sequence back{sequence.blocks, static_cast<std::int32_t>(info.tokens), static_cast<std::int32_t>(info.pages)};
  std::reverse(back.blocks.begin(), back.blocks.end());
  std::vector<std::int32_t> const of_pages(back.blocks.begin(), back.blocks.begin() + back.pages);
  tessera::load_cache(exec, other, saved.data(), std::ssize(saved), 0, of_pages);
  for (int layer = 0; layer < cache.layers(); ++layer) {
    require(exit_code::unsound, restored(exec, other, layer, back) == restored(exec, cache, layer, sequence), "layer ",
            layer, " of what was saved did not come back");
  }
  std::printf("Saved in %s, and came back bit for bit, in other blocks.\n", readable_bytes(std::ssize(saved)).c_str());
}

/// Results ordered head by head, from steps that come token by token, query heads x channels each.
std::vector<float> by_heads(std::vector<std::vector<float>> const& steps, std::size_t heads) {
  std::vector<float> found;
  for (std::size_t head = 0; head < heads; ++head) {
    for (std::vector<float> const& step : steps) {
      auto const first = step.begin() + static_cast<std::ptrdiff_t>(head * step.size() / heads);
      found.insert(found.end(), first, first + static_cast<std::ptrdiff_t>(step.size() / heads));
    }
  }
  return found;
}

void run() {
  real_layers const data = read_layers(std::string(EXAMPLE_DATA) + "/smollm2_attention.safetensors");
  cpu const exec;
  tessera::cache_extents const extents{
      .slots = 1, .tokens = data.tokens, .blocks = 8, .heads = data.key_heads, .channels = data.channels};
  cache_type const cache(exec, extents, {.parts = {cache_type::single(), cache_type::pair()}});
  one_sequence sequence{{0, 1, 2, 3, 4, 5, 6, 7}};
  add_prompt(exec, cache, data, sequence);
  std::vector<std::vector<float>> results(data.layers.size());
  std::vector<std::vector<std::vector<float>>> steps(data.layers.size());
  for (std::int64_t step = 0; step < data.queries; ++step) {
    add_token(exec, cache, data, sequence, results);
    for (std::size_t layer = 0; layer < results.size(); ++layer) {
      steps[layer].push_back(results[layer]);
    }
  }
  text_table table({"layer", "kept", "relative error of attention"}, 2);
  for (std::size_t layer = 0; layer < results.size(); ++layer) {
    double const error =
        relative_error(by_heads(steps[layer], static_cast<std::size_t>(data.query_heads)), data.layers[layer]);
    table.add({data.layers[layer].name, layer == 0 ? "by itself" : "merged", fixed(error, 3)});
    require(exit_code::unsound, error < (layer == 0 ? 0.15 : 1.5), "layer ", data.layers[layer].name,
            " has an error of ", error);
  }
  table.print(stdout);
  std::printf("\n%s.\n", cache.wait_for_statistics(exec, sequence.view()).describe().c_str());
  save_and_load(exec, cache, sequence);
}

}  // namespace
}  // namespace tessera_examples

int main() {
  return tessera_examples::run_example("minicache", tessera_examples::run);
}
