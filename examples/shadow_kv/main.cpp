// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Generates 64 tokens after a prompt of 448, attending to a few chunks of it, with four selectors in one pipeline.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/select/quest.hpp>
#include <tessera/select/recent.hpp>
#include <tessera/shadow_kv.hpp>

#include "../support/failure.hpp"
#include "../support/real_layers.hpp"
#include "../support/run_example.hpp"
#include "../support/text_table.hpp"

namespace tessera_examples {
namespace {

using tessera::bfloat16;
using tessera::buffer;
using tessera::view;
using tessera::workspace;

/// The paper's method with other selectors, and fewer outliers for a context this short.
template <class Selector>
using method_of = tessera::offloaded_cache<tessera::low_rank<96>, Selector, tessera::keep_outliers<4>>;

constexpr std::size_t which = 1;  // layer 15

/// The token `token` of heads x tokens x channels: 1 x heads x channels.
view<bfloat16 const, 3> token_of(view<bfloat16 const, 3> heads, std::int64_t token) {
  return {&heads(0, token, 0), {1, heads.extent(0), heads.extent(2)}, {0, heads.stride(0), heads.stride(2)}};
}

struct outcome {
  double error;
  double hit_rate;
  std::int64_t device_bytes;
  std::int64_t host_bytes;
};

template <class Selector>
outcome generate(real_layers const& data, Selector const& selector) {
  using method = method_of<Selector>;
  real_layer const& layer = data.layers[which];
  auto const queries = data.queries_in(layer.queries);
  auto const keys = data.keys_in(layer.keys);
  auto const values = data.keys_in(layer.values);
  std::int64_t const prompt = data.tokens - data.queries;
  tessera::cpu const exec;
  tessera::side_queue<tessera::cpu> const side(exec, 1);  // on a GPU: a second stream, for copies over the bus
  tessera::offload_options options;
  options.ring = 32;
  auto const plan = method::template plan<bfloat16>(
      exec, {data.query_heads, data.key_heads, data.channels, {data.tokens}}, options, selector);
  buffer<std::byte> device(exec, plan.device.bytes());
  buffer<std::byte> host(exec, plan.host.bytes());  // on a GPU: pinned memory
  auto const of_prompt = method::plan_prefill(exec, plan);
  auto const of_step = method::plan_decode(exec, plan);
  buffer<std::byte> prompt_memory(exec, of_prompt.bytes());
  buffer<std::byte> step_memory(exec, of_step.bytes());
  auto const cache = method::open(exec, plan, device.view(), host.view(), data.rotary());
  method::prefill(exec, side, cache, 0, keys.slice(1, 0, prompt), values.slice(1, 0, prompt),
                  workspace(of_prompt, prompt_memory));

  std::vector<float> found(layer.queries.size());
  view<float, 3> const results(found.data(), {data.query_heads, data.queries, data.channels});
  for (std::int64_t step = 0; step < data.queries; ++step) {
    view<float, 3> const result(&results(0, step, 0), {1, data.query_heads, data.channels}, {0, results.stride(0), 1});
    method::decode(exec, side, cache,
                   {token_of(queries, step), token_of(keys, prompt + step), token_of(values, prompt + step)},
                   tessera::offload_outputs<float>{result}, workspace(of_step, step_memory));
  }
  auto const statistics = method::wait_for_statistics(exec, cache);
  return {relative_error(found, layer), statistics.hit_rate(), plan.device.bytes(), plan.host.bytes()};
}

template <class Selector>
void add_row(text_table& table, char const* name, real_layers const& data, std::int64_t chunks, double limit) {
  Selector selector;
  selector.chunks = chunks;
  outcome const found = generate(data, selector);
  table.add({name, tessera::join(chunks), fixed(found.error, 3), fixed(100 * found.hit_rate, 0) + " %",
             readable_bytes(found.device_bytes), readable_bytes(found.host_bytes)});
  require(exit_code::unsound, found.error < limit, name, ": the relative error is ", found.error, " but must be below ",
          limit);
}

void compare() {
  real_layers const data = read_layers(std::string(EXAMPLE_DATA) + "/smollm2_attention.safetensors");
  text_table table({"selector", "chunks of 53", "relative error", "in slots already", "on the device", "on the host"});
  add_row<tessera::coded_landmark_selector<8>>(table, "landmarks in 8 bits", data, 16, 0.2);
  add_row<tessera::coded_landmark_selector<8>>(table, "landmarks in 8 bits", data, 53, 0.05);
  add_row<tessera::landmark_selector<8>>(table, "landmarks (ShadowKV)", data, 16, 0.2);
  add_row<tessera::quest_selector<8>>(table, "Quest", data, 16, 0.25);
  add_row<tessera::recent_selector<8>>(table, "the latest", data, 16, 0.5);
  table.print(stdout);
}

}  // namespace
}  // namespace tessera_examples

int main() {
  return tessera_examples::run_example("shadow_kv", tessera_examples::compare);
}
