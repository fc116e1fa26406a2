// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// ShadowKV in all layers with the paper's parameters: keys in 160 of 192 directions, values in memory of the host,
/// attention over some chunks of 8 tokens and, in each head, 48 that are kept exactly.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rows.hpp"
#include "shadow_layer.hpp"

namespace tessera_examples {
namespace {

/// chunks: 0 for all of them.
method_row shadow_row(std::string name, std::string what, std::int64_t chunks) {
  return {std::move(name), std::move(what), "cache", [=](exact_run const& exact, progress_report& report) {
            model_extents const& n = exact.net.extents();
            std::int64_t const all = std::ssize(exact.text());
            auto const plan = plan_shadow_layer(exact.net, all, chunks > 0 ? chunks : all);
            auto const attend = [&](layer_heads const& in) {
              shadow_layer cache(exact.net, plan);
              cache.take(exact.prompt.layers[static_cast<std::size_t>(in.layer)]);
              cache.attend(in);
            };
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
