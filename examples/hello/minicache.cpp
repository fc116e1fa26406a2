// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Keeps two layers' 512 tokens as one on the CPU. Queries that are keys of the second layer find their values in it.
#include <cmath>
#include <cstdio>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/minicache.hpp>
#include <tessera/testing/generators.hpp>

using tessera::bfloat16;

int main() {
  constexpr int tokens = 512, channels = 64, size = tokens * channels;
  std::vector<bfloat16> layers(2 * size), found(size);  // the layers' keys, which also serve as values
  tessera::testing::fill(tessera::testing::gauss{}, 1, layers.data(), size);
  tessera::testing::fill(tessera::testing::offset_channels{channels, 1.0, 0.3}, 1, layers.data() + size, size);
  std::vector<int> const lists{0, 1, 2, 3, 4, 5, 6, 7, tokens};  // the blocks of the pages, then the length

  tessera::cpu const exec;
  tessera::minicache const cache(exec, {1, tokens, 8, 1, channels}, {.parts = {tessera::minicache::pair()}});
  tessera::cache_sequences const sequences{.blocks = {lists.data(), {1, 8}}, .lengths = {lists.data() + 8, 1}};
  tessera::head_view<bfloat16 const> const first(layers.data(), {1, 1, tokens, channels});
  tessera::head_view<bfloat16 const> const second(layers.data() + size, {1, 1, tokens, channels});
  tessera::buffer<std::byte> memory(exec, 1 << 20);  // enough for either call
  tessera::workspace const append_space(cache.plan_append(exec, {1, tokens}), memory);
  cache.append(exec, 0, {{first, second}, {first, second}}, sequences, {.tokens = tokens}, append_space);
  tessera::workspace const attend_space(cache.plan_attend(exec, {1, 1, 1, tokens, tokens, channels}), memory);
  tessera::attention_outputs<bfloat16> const outputs{{found.data(), {1, 1, tokens, channels}}};
  cache.attend(exec, 1, second, sequences, {.softmax_scale = 0.5F}, outputs, attend_space);
  double const ratio = cache.wait_for_statistics(exec, sequences).ratio();  // waits for the results, too

  float difference = 0, total = 0;
  for (int i = 0; i < size; ++i) {
    difference += std::abs(tessera::load(found[i]) - tessera::load(layers[size + i]));
    total += std::abs(tessera::load(layers[size + i]));
  }
  std::printf("%.1f times smaller than bf16, values with errors of %.0f %%\n", ratio, 100.0 * difference / total);
}
