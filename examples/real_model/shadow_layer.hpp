// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// One layer's ShadowKV cache: a prompt, and tokens that are decoded one by one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/shadow_kv.hpp>

#include "kept_prompt.hpp"
#include "transformer.hpp"

namespace tessera_examples {

class shadow_layer {
 public:
  using method = tessera::shadow_kv;
  using plan_type = method::plan_type<bfloat16>;

  /// The transformer must outlive the cache.
  shadow_layer(transformer const& net, plan_type const& plan)
      : exec_(net.exec()),
        side_(exec_, method::side_marks),
        device_(exec_, plan.device.bytes()),
        host_(exec_, plan.host.bytes()),  // on a GPU: pinned memory
        prompt_plan_(method::plan_prefill(exec_, plan)),
        step_plan_(method::plan_decode(exec_, plan)),
        memory_(exec_, std::max(prompt_plan_.bytes(), step_plan_.bytes())),
        cache_(method::open(exec_, plan, device_.view(), host_.view(), net.rotary())) {}

  /// Takes a prompt.
  void take(kept_layer const& prompt) {
    method::prefill(exec_, side_, cache_, 0, prompt.keys.view()[0], prompt.values.view()[0],
                    tessera::workspace(prompt_plan_, memory_));
  }
  /// Decodes tokens, one by one.
  void attend(layer_heads const& in) {
    tessera::workspace const space(step_plan_, memory_);
    for (std::int64_t token = 0; token < in.queries.extent(2); ++token) {
      method::decode(exec_, side_, cache_,
                     {token_of(in.queries, token), token_of(in.keys, token), token_of(in.values, token)},
                     tessera::offload_outputs<bfloat16>{token_of(in.result, token)}, space);
    }
    exec_.wait();
  }

 private:
  /// One token of 1 x heads x tokens x channels: 1 x heads x channels.
  template <class T>
  static tessera::view<T, 3> token_of(head_view<T> heads, std::int64_t token) {
    return {&heads(0, 0, token, 0), {1, heads.extent(1), heads.extent(3)}, {0, heads.stride(1), heads.stride(3)}};
  }

  tessera::cpu exec_;
  tessera::side_queue<tessera::cpu> side_;
  tessera::buffer<std::byte> device_;
  tessera::buffer<std::byte> host_;
  tessera::workspace_plan prompt_plan_;
  tessera::workspace_plan step_plan_;
  tessera::buffer<std::byte> memory_;
  method::cache_type<bfloat16> cache_;
};

/// The plan of a layer's cache for so many tokens, of which each step reads so many chunks.
inline shadow_layer::plan_type plan_shadow_layer(transformer const& net, std::int64_t tokens, std::int64_t chunks) {
  model_extents const& n = net.extents();
  shadow_layer::method::selector_type selector;
  selector.chunks = chunks;
  return shadow_layer::method::plan<bfloat16>(net.exec(), {n.query_heads, n.key_heads, n.head_channels, {tokens}}, {},
                                              selector);
}

}  // namespace tessera_examples
