// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/sage_attention2.hpp>

#include "algorithm/attention/attention_on_device.cuh"
#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Whether results are the same numbers, or NaNs at the same indices.
bool are_same(std::vector<double> const& a, std::vector<double> const& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

/// Whether memory that began as rubbish has codes of queries.
bool has_query_codes(device_attention_results const& made, attention_shape const& s) {
  sage_attention2::regions const layout("test", s);
  auto const first = made.bytes.begin() + layout.query_codes.offset;
  return std::any_of(first, first + layout.query_codes.count, [](std::byte x) { return x != std::byte{0xa5}; });
}

/// Checks that results are the same to the bit whether codes of queries are made before (they are where log-sum-exps
/// are asked for) or by the program itself. `by_itself`: whether a program of sm_90a makes them itself here.
template <class T>
void check_queries(attention_problem<T> const& p, head_layout layout = head_layout::heads_first,
                   bool by_itself = true) {
  attention_shape const& s = p.shape;
  CAPTURE(s.batch, s.query_heads, s.key_heads, s.queries, s.keys, s.channels, static_cast<int>(layout));
  CAPTURE(p.options.is_causal, p.options.window_left, p.query_lengths, p.key_lengths);
  cuda const exec;
  auto const before = run_on_device<sage_attention2, T>(exec, p, layout, true);
  auto const itself = run_on_device<sage_attention2, T>(exec, p, layout, false);
  CHECK(has_query_codes(before, s));
  CHECK(has_query_codes(itself, s) == !(by_itself && is_hopper()));
  CHECK(itself.is_clean);
  CHECK(are_same(itself.found.result, before.found.result));
}

}  // namespace

TEST_CASE("queries whose codes the program makes itself give the bits of codes made before", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {16, 64, 96, 128, 160, 256}) {
    for (std::int64_t const tokens : {70, 127, 128, 129, 192, 193, 256, 257, 1100}) {
      auto p = make_attention_problem<bfloat16>({2, 4, 2, tokens, tokens, channels});
      check_queries(p);
      p.options.is_causal = true;
      check_queries(p);
    }
    check_queries(make_attention_problem<float16>({1, 3, 1, 300, 500, channels}), head_layout::tokens_first);
  }
}

TEST_CASE("a program that makes codes of queries itself takes many blocks, splits and lengths in turn", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    auto p = make_attention_problem<bfloat16>({2, 40, 8, 1500, 1500, channels});
    p.options.is_causal = true;
    check_queries(p);
    p.options.window_left = 200;
    check_queries(p);
    auto lengths = make_attention_problem<bfloat16>({5, 8, 2, 700, 900, channels});
    lengths.query_lengths = {0, 1, 192, 700, 257};
    lengths.key_lengths = {900, 0, 129, 900, 1};
    check_queries(lengths);
    check_queries(make_attention_problem<bfloat16>({1, 1, 1, 300, 20000, channels}));
  }
}

TEST_CASE("NaNs, infinities and zeros among queries reach the same results whoever makes their codes", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    auto p = make_attention_problem<bfloat16>({1, 2, 1, 400, 500, channels});
    auto const row = [&](std::int64_t of) { return p.queries.begin() + static_cast<std::ptrdiff_t>(of * channels); };
    *(row(37) + 3) = store<bfloat16>(NAN);
    *(row(200) + 15) = store<bfloat16>(-INFINITY);
    std::fill(row(96), row(112), store<bfloat16>(0.0F));
    std::fill(row(300), row(301), store<bfloat16>(3e38F));
    std::fill(row(301), row(302), store<bfloat16>(1e-39F));
    check_queries(p);
  }
}

TEST_CASE("codes of queries that do not lie in whole vectors are made before", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_queries(make_attention_problem<bfloat16>({1, 2, 1, 300, 300, 64}), head_layout::shifted, false);
  auto p = make_attention_problem<bfloat16>({1, 2, 1, 300, 300, 64});
  p.sinks = {0.5F, -1.0F};
  check_queries(p, head_layout::heads_first, false);
}
