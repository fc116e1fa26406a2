// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Keeps 8192 tokens on a GPU. A step whose queries are the keys of token 5000 finds its value in a quarter of them.
#include <cstdio>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/shadow_kv.hpp>
#include <tessera/testing/generators.hpp>

using tessera::bfloat16;
using method = tessera::shadow_kv;

int main() {
  constexpr int heads = 2, tokens = 8192, channels = 64, size = heads * tokens * channels;
  std::vector<bfloat16> numbers(2 * size), found(heads * channels);  // keys, then values: heads x tokens x channels
  tessera::testing::fill(tessera::testing::gauss{}, 1, numbers.data(), 2 * size);
  tessera::cuda const exec;
  tessera::buffer<bfloat16> there(exec, 2 * size), result(exec, heads * channels);
  exec.copy(numbers, there);
  tessera::view<bfloat16 const, 3> const keys(there.data(), {heads, tokens, channels});
  tessera::view<bfloat16 const, 3> const values(there.data() + size, {heads, tokens, channels});

  tessera::side_queue<tessera::cuda> const side(exec, method::side_marks, true);  // a stream for copies from the host
  auto const plan = method::plan<bfloat16>(exec, {heads, heads, channels, {tokens + 64}}, {.softmax_scale = 0.5F});
  tessera::pinned_memory pinned;
  tessera::buffer<std::byte> device(exec, plan.device.bytes()), host(plan.host.bytes(), pinned);
  auto const cache = method::open(exec, plan, device, host);  // no rotary embedding
  auto const of_prompt = method::plan_prefill(exec, plan), of_step = method::plan_decode(exec, plan);
  tessera::buffer<std::byte> memory(exec, tessera::max(of_prompt.bytes(), of_step.bytes()));
  method::prefill(exec, side, cache, 0, keys, values, tessera::workspace(of_prompt, memory));
  auto const token = [](auto of, int which) { return of.slice(1, which, 1).transposed(0, 1); };  // 1 x heads x channels
  tessera::offload_tokens<bfloat16> const step{token(keys, 5000), token(keys, 0), token(values, 0)};
  tessera::offload_outputs<bfloat16> const outputs{{result.data(), {1, heads, channels}}};
  method::decode(exec, side, cache, step, outputs, tessera::workspace(of_step, memory));
  exec.copy(result, found);
  auto const selected = method::wait_for_statistics(exec, cache).usage[0].selected;  // waits for the result, too
  std::printf("%.2f found for %.2f, with %d of %d chunks\n", double{tessera::load(found[0])},
              double{tessera::load(numbers[size + 5000 * channels])}, static_cast<int>(selected), tokens / 8);
}
