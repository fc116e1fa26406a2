// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Trains a classifier of 8192 entries for three steps on the CPU, without its logits in memory.
#include <cstddef>
#include <cstdio>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/generators.hpp>

using tessera::bfloat16;
using loss = tessera::cut_cross_entropy;

int main() {
  constexpr int tokens = 8, vocabulary = 8192, channels = 64, size = vocabulary * channels;
  std::vector<bfloat16> rows(size + tokens * channels);  // the classifier's rows, then hidden states
  tessera::testing::fill(tessera::testing::gauss{0.3}, 1, rows.data(), rows.size());
  std::vector<int> const labels{3, 1, 41, 59, 26, 5358, 9, 8191};
  std::vector<float> outputs(size + 1);  // the gradient by the classifier, then the loss

  tessera::cpu const exec;
  loss::inputs<int> const in{{rows.data() + size, {tokens, channels}}, {rows.data(), {vocabulary, channels}}, labels};
  tessera::linear_loss_gradients<float> const gradients{{}, {outputs.data(), {vocabulary, channels}}};
  auto const plan = loss::plan_backward<float>(exec, {tokens, vocabulary, channels});
  tessera::buffer<std::byte> memory(exec, plan.bytes());
  for (int step = 0; step < 3; ++step) {
    loss::forward(exec, in, {}, {.loss = {outputs.data() + size, 1}}, tessera::workspace(plan, memory));
    loss::backward(exec, in, {}, {}, gradients, tessera::workspace(plan, memory));
    exec.wait();
    std::printf("step %d: loss %.2f\n", step, static_cast<double>(outputs[size]));
    for (int i = 0; i < size; ++i) {
      rows[i] = tessera::store<bfloat16>(tessera::load(rows[i]) - 8 * outputs[i]);
    }
  }
}
