// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs plain_float8_attention and compares it with attention in double over the values before quantization.
#pragma once

#include "../support/exact_attention.hpp"
#include "../support/paper_trial.hpp"
#include "float8_attention.hpp"

namespace tessera_examples {

struct float8_attention_trial {
  struct extents {
    std::int64_t heads, tokens, channels;
  };
  static constexpr char const* name = "float8_attention";
  static constexpr extents usual{2, 200, 64}, large[] = {{16, 8192, 128}};
  static constexpr double bound = 0.2;  ///< codes of keys and weights are off by up to 1/16

  template <class Executor>
  static paper_finding run(Executor const& exec, extents of) {
    std::int64_t const size = of.heads * of.tokens * of.channels;
    auto const made = [&](std::uint64_t seed) { return filled<bfloat16>(exec, testing::gauss{}, seed, size); };
    auto const q = made(1), k = made(2), v = made(3);
    auto results = poisoned<bfloat16>(exec, size);
    std::int64_t const shape[4] = {1, of.heads, of.tokens, of.channels};
    attention_inputs<bfloat16> const inputs{{q.data(), shape}, {k.data(), shape}, {v.data(), shape}};
    auto const plan =
        plain_float8_attention::plan_forward(exec, {1, of.heads, of.heads, of.tokens, of.tokens, of.channels});
    buffer<std::byte> memory(exec, plan.bytes());
    workspace const space(plan, memory);
    paper_finding found{join(of.heads, " heads of ", of.channels, ", ", of.tokens, " tokens"),
                        seconds_of(exec,
                                   [&] {
                                     plain_float8_attention::forward(
                                         exec, inputs, {}, attention_outputs<bfloat16>{{results.data(), shape}}, space);
                                   }),
                        0};
    found.flops = 4 * static_cast<double>(size) * static_cast<double>(of.tokens);
    std::int64_t const head = (of.heads - 1) * of.tokens * of.channels, a_head = of.tokens * of.channels;
    auto const some_q = here(exec, q, head, a_head), some_k = here(exec, k, head, a_head);
    auto const some_v = here(exec, v, head, a_head), some = here(exec, results, head, a_head);
    largest_error error;
    for (std::int64_t token = 0; token < of.tokens; token += divide_up(of.tokens, std::int64_t{64})) {
      auto const expected = attend_exactly<bfloat16>({some_q.data() + token * of.channels, of.channels},
                                                     {some_k.data(), {of.tokens, of.channels}},
                                                     {some_v.data(), {of.tokens, of.channels}});
      for (std::int64_t c = 0; c < of.channels; ++c) {
        error.add(static_cast<double>(load(some[static_cast<std::size_t>(token * of.channels + c)])),
                  expected.result[static_cast<std::size_t>(c)]);
      }
    }
    found.error = error.relative();
    return found;
  }
};

}  // namespace tessera_examples
