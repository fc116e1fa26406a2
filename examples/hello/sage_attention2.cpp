// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Attends in 8 bits on the CPU. Each query is its own token's key, so that the result is nearly that token's value.
#include <cmath>
#include <cstdio>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/testing/generators.hpp>

using tessera::bfloat16;

int main() {
  constexpr int tokens = 512, channels = 64, size = tokens * channels;
  std::vector<bfloat16> numbers(2 * size), found(size);  // keys, then values
  tessera::testing::fill(tessera::testing::gauss{}, 1, numbers.data(), 2 * size);
  bfloat16 const* const values = numbers.data() + size;

  tessera::cpu const exec;
  tessera::head_view<bfloat16 const> const k(numbers.data(), {1, 1, tokens, channels});  // one sequence with one head
  tessera::head_view<bfloat16 const> const v(numbers.data() + size, {1, 1, tokens, channels});
  tessera::attention_outputs<bfloat16> const outputs{{found.data(), {1, 1, tokens, channels}}};
  auto const plan = tessera::sage_attention2::plan_forward(exec, {1, 1, 1, tokens, tokens, channels});
  tessera::buffer<std::byte> memory(exec, plan.bytes());
  tessera::workspace const space(plan, memory);
  tessera::sage_attention2::forward(exec, tessera::attention_inputs<bfloat16>{k, k, v}, {.softmax_scale = 0.5F},
                                    outputs, space);
  exec.wait();

  float difference = 0, total = 0;
  for (int i = 0; i < size; ++i) {
    difference += std::abs(tessera::load(found[i]) - tessera::load(values[i]));
    total += std::abs(tessera::load(values[i]));
  }
  std::printf("%d tokens find their values with an error of %.1f %%\n", tokens, 100.0 * difference / total);
}
