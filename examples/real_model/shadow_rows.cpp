// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// ShadowKV in all layers: keys in 160 of 192 directions, values in memory of the host, and attention over some chunks.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/shadow_kv.hpp>

#include "rows.hpp"

namespace tessera_examples {
namespace {

/// The paper's method with its rank, and four outliers: its 48 would be a quarter of a prompt as short as this one.
using method = tessera::offloaded_cache<tessera::low_rank<160>, tessera::coded_landmark_selector<8>,
                                        tessera::keep_outliers<4>>;
using plan_type = method::plan_type<bfloat16>;
using tokens_view = tessera::view<bfloat16 const, 3>;

plan_type plan_layer(exact_run const& exact, std::int64_t chunks) {
  model_extents const& n = exact.net.extents();
  tessera::offload_options options;
  options.ring = 32;
  tessera::coded_landmark_selector<8> selector;
  selector.chunks = chunks;
  return method::plan<bfloat16>(exact.exec(), {n.query_heads, n.key_heads, n.head_channels, {std::ssize(exact.text())}},
                                options, selector);
}

/// Heads x tokens x channels.
tokens_view heads_in(head_view<bfloat16 const> heads) {
  return heads[0];
}
/// One token of them: 1 x heads x channels.
template <class T>
tessera::view<T, 3> token_of(head_view<T> heads, std::int64_t token) {
  return {&heads(0, 0, token, 0), {1, heads.extent(1), heads.extent(3)}, {0, heads.stride(1), heads.stride(3)}};
}

/// Puts the prompt of a layer into a cache, and decodes the later tokens one by one.
void decode_layer(exact_run const& exact, plan_type const& plan, layer_heads const& in) {
  tessera::cpu const& exec = exact.exec();
  tessera::side_queue<tessera::cpu> const side(exec, method::side_marks);
  tessera::buffer<std::byte> device(exec, plan.device.bytes());
  tessera::buffer<std::byte> host(exec, plan.host.bytes());  // on a GPU: pinned memory
  auto const of_prompt = method::plan_prefill(exec, plan);
  auto const of_step = method::plan_decode(exec, plan);
  tessera::buffer<std::byte> memory(exec, std::max(of_prompt.bytes(), of_step.bytes()));
  auto const cache = method::open(exec, plan, device.view(), host.view(), exact.net.rotary());
  kept_layer const& prompt = exact.prompt.layers[static_cast<std::size_t>(in.layer)];
  method::prefill(exec, side, cache, 0, heads_in(prompt.keys.view()), heads_in(prompt.values.view()),
                  tessera::workspace(of_prompt, memory));
  tessera::workspace const space(of_step, memory);
  for (std::int64_t token = 0; token < in.queries.extent(2); ++token) {
    method::decode(exec, side, cache, {token_of(in.queries, token), token_of(in.keys, token), token_of(in.values, token)},
                   tessera::offload_outputs<bfloat16>{token_of(in.result, token)}, space);
  }
  exec.wait();
}

/// chunks: 0 for all of them.
method_row shadow_row(std::string name, std::string what, std::int64_t chunks) {
  return {std::move(name), std::move(what), "cache", [=](exact_run const& exact, progress_report& report) {
            model_extents const& n = exact.net.extents();
            std::int64_t const all = std::ssize(exact.text());
            plan_type const plan = plan_layer(exact, chunks > 0 ? chunks : all);
            auto const attend = [&](layer_heads const& in) { decode_layer(exact, plan, in); };
            return method_result{.hidden = exact.net.forward(exact.later_text(), exact.prompt_tokens,
                                                             with_progress(report, n.layers, attend)),
                                 .bytes = n.layers * plan.device.bytes(),
                                 .exact_bytes = n.layers * n.key_heads * all * n.head_channels * 4,
                                 .host_bytes = n.layers * plan.host.bytes()};
          }};
}

}  // namespace

std::vector<method_row> shadow_rows() {
  return {shadow_row("shadow_all_chunks", "rank 160, all chunks", 0),
          shadow_row("shadow_32_chunks", "rank 160, 32 chunks", 32),
          shadow_row("shadow_8_chunks", "rank 160, 8 chunks", 8)};
}

}  // namespace tessera_examples
