// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Keeps keys and values as codes, as an engine does between steps, and attends to them with queries that come later.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

#include "../support/failure.hpp"
#include "../support/real_layers.hpp"
#include "../support/run_example.hpp"
#include "../support/text_table.hpp"

namespace tessera_examples {
namespace {

using tessera::bfloat16;
using tessera::buffer;
using tessera::quantize_options;
using tessera::workspace;

/// What a user changes to get another method: this one also smooths queries and values.
using careful_attention = tessera::attention<
    tessera::smoothed<tessera::smoothed<tessera::symmetric_quantizer<8, tessera::per_thread>>, tessera::block_mean>,
    tessera::smoothed<tessera::float8_quantizer<tessera::float8_e4m3>>>;

constexpr std::size_t which = 1;  // layer 15

/// One sequence as a batch.
tessera::head_view<bfloat16 const> batch_of(tessera::view<bfloat16 const, 3> heads) {
  return {heads.data, {1, heads.extent(0), heads.extent(1), heads.extent(2)}};
}

/// The relative error of the attention of the last tokens; `kept` gets the bytes of codes and scales that stay in
/// memory.
template <class Method>
double attend(real_layers const& data, std::int64_t& kept) {
  real_layer const& layer = data.layers[which];
  tessera::cpu const exec;
  tessera::attention_shape const shape{1, data.query_heads, data.key_heads, data.queries, data.tokens, data.channels};
  // Done once, when keys and values are there.
  quantize_options const cached{.parts = {.queries = false, .mean_scores = false}};
  auto const cache_plan = Method::plan_quantize(exec, shape, cached);
  buffer<std::byte> cache_memory(exec, cache_plan.bytes());
  workspace const cache_space(cache_plan, cache_memory);
  auto const cache = Method::operands(shape, cache_space, cached);
  tessera::attention_inputs<bfloat16> const keys_and_values{
      {}, batch_of(data.keys_in(layer.rotated_keys)), batch_of(data.keys_in(layer.values))};
  Method::quantize(exec, shape, keys_and_values, cached, cache, cache_space);
  kept = cache_plan.bytes();
  // Done each time that there are queries.
  quantize_options const later{.parts = {.keys = false, .values = false, .mean_scores = false}};
  auto const plan = Method::plan_quantize(exec, shape, later);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  auto heads = Method::operands(shape, space, later);
  heads.keys = cache.keys;
  heads.values = cache.values;
  tessera::attention_inputs<bfloat16> const queries{batch_of(data.queries_in(layer.rotated_queries)), {}, {}};
  Method::quantize(exec, shape, queries, later, heads, space);
  std::vector<float> result(layer.queries.size());
  tessera::attention_call<typename Method::method, float> const call{
      .shape = shape,
      .options = {.is_causal = true},
      .heads = heads,
      .out = {{result.data(), {1, shape.query_heads, shape.queries, shape.channels}}}};
  Method::forward(exec, call);
  exec.wait();
  return relative_error(result, layer);
}

template <class Method>
void add_row(text_table& table, char const* name, real_layers const& data, double limit) {
  std::int64_t bytes = 0;
  double const error = attend<Method>(data, bytes);
  table.add({name, readable_bytes(data.plain_bytes()), readable_bytes(bytes), fixed(100 * error, 2) + " %"});
  require(exit_code::unsound, error < limit, name, ": the relative error is ", error, " but must be below ", limit);
}

void compare() {
  real_layers const data = read_layers(std::string(EXAMPLE_DATA) + "/smollm2_attention.safetensors");
  text_table table({"64 queries, 512 keys", "keys and values, bf16", "kept", "relative error"});
  add_row<tessera::sage_attention2>(table, "sage_attention2", data, 0.04);
  add_row<tessera::sage_attention2_int4>(table, "sage_attention2_int4", data, 0.25);
  add_row<careful_attention>(table, "queries and values smoothed, too", data, 0.04);
  table.print(stdout);
}

}  // namespace
}  // namespace tessera_examples

int main() {
  return tessera_examples::run_example("sage_attention2", tessera_examples::compare);
}
