// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tests that the program for sm_90a takes 8-bit floats, and what it makes of them beside the portable program.
#include <cstddef>
#include <cstdint>
#include <string>

#include <tessera/algorithm/attention/float8_attention.hpp>
#include <tessera/exec/explain.hpp>

#include "algorithm/attention/attention_of_float8.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

/// What a call of attention over 128 channels would run on an H200.
template <class Attention>
explanation explain_float8(std::int64_t queries) {
  return explain(cuda::described({}), [&](auto const& dry) {
    attention_shape const s{1, 32, 8, queries, 16384, 128};
    auto const heads = [&](std::int64_t count, std::int64_t tokens) {
      auto* const nowhere = reinterpret_cast<bfloat16*>(std::uintptr_t{1} << 30);
      return head_view<bfloat16>(nowhere, {1, count, tokens, 128});
    };
    auto const plan = Attention::plan_forward(dry, s);
    workspace const space(plan, {reinterpret_cast<std::byte*>(std::uintptr_t{1} << 30), plan.bytes()});
    attention_inputs<bfloat16> const in{heads(32, queries), heads(8, 16384), heads(8, 16384)};
    Attention::forward(dry, in, {}, attention_outputs<bfloat16>{heads(32, queries)}, space);
  });
}

}  // namespace

TEST_CASE("the program for sm_90a takes 8-bit floats, and agrees with the portable program and the formula", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {48, 64, 128, 256}) {
    for (std::int64_t const queries : {1, 5, 16}) {
      check_against_portable(make_attention_problem<bfloat16>({2, 4, 2, queries, 3000, channels}));
    }
    auto p = make_attention_problem<bfloat16>({1, 4, 2, 300, 1100, channels});
    check_against_portable(p);
    check_against_portable<float8_exponentials>(p);
    p.options.is_causal = true;
    check_against_portable(p);
    check_against_portable<float8_smoothed_queries>(p);
  }
}

TEST_CASE("programs say why they take 8-bit floats of queries and keys, or not", "[cuda]") {
  auto const fast = explain_float8<float8_attention>(16384);
  CAPTURE(fast.text());
  CHECK(fast.is_fast());
  std::string const program =
      tessera_test::is_hopper() ? "quantized_forward (TMA, wgmma)" : "attention_tiles (cp.async, mma.sync)";
  CHECK(fast.text().find(program) != std::string::npos);
  CHECK(fast.text().find("quantize_heads") != std::string::npos);
  auto const by_token = explain_float8<float8_by_token>(16384);
  CAPTURE(by_token.text());
  CHECK(!by_token.is_fast());
  CHECK(by_token.text().find("scales of queries and keys are not per_thread") != std::string::npos);
  auto const decode = explain_float8<float8_attention>(1);
  CAPTURE(decode.text());
  CHECK(decode.is_fast());
  CHECK(decode.text().find(program) != std::string::npos);
}
