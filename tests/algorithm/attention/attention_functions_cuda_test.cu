// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tests biases of scores, and functions that inputs are read through.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithm/attention/attention_on_device.cuh"
#include "support/score_functions.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("a bias is added to scores on a GPU, and minus infinity masks", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  slope_bias const bias{0.02F};
  for (std::int64_t const queries : {200, 3}) {
    auto p = make_attention_problem<bfloat16>({2, 4, 2, queries, 700, 64});
    p.options.is_causal = true;
    p.key_lengths = {700, 300};
    CAPTURE(queries);
    auto const found = run_on_device<sage_attention2, bfloat16>(exec, p, head_layout::tokens_first, true,
                                                                attention_functions<slope_bias>{bias});
    auto const expected = run_attention_problem<sage_attention2, bfloat16>(cpu{}, p, bias);
    CHECK(found.is_clean);
    CHECK(error_of(found.found.result, expected.result).relative_l1 < 4e-3);
    CHECK(farthest(found.found.log_sum_exp, expected.log_sum_exp) < 0.0607);  // the program for sm_90a rounds elsewhere
    auto const by_formula =
        attention_by_formula(p, [&](std::int64_t b, std::int64_t head, std::int64_t query, std::int64_t key) {
          return static_cast<double>(bias(b, head, query, key));
        });
    CHECK(error_of(found.found.result, by_formula.result).relative_l1 < 0.06);
  }
}

TEST_CASE("functions on the way in are for GPUs, too: a norm and then a rotation", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  map_tables const tables(700, 64);
  auto const cosines = to_device(exec, tables.cosines);
  auto const sines = to_device(exec, tables.sines);
  auto const weights = to_device(exec, tables.weights);
  using map = normalized_and_rotated;
  using maps = attention_functions<no_bias, map, map>;
  map const there{{weights.view(), 1e-6F}, {{cosines.data(), {700, 32}}, {sines.data(), {700, 32}}}};
  map const here{{tables.weights, 1e-6F}, {{tables.cosines.data(), {700, 32}}, {tables.sines.data(), {700, 32}}}};
  for (std::int64_t const queries : {300, 2}) {
    CAPTURE(queries);
    auto p = make_attention_problem<bfloat16>({1, 4, 2, queries, 700, 64});
    p.options.is_causal = true;
    auto const found =
        run_on_device<sage_attention2, bfloat16>(exec, p, head_layout::heads_first, true, maps{{}, there, there});
    auto const plan = sage_attention2::plan_forward(cpu{}, p.shape);
    buffer<std::byte> memory(cpu{}, plan.bytes());
    std::vector<bfloat16> result(p.queries.size());
    std::vector<float> lse(as_size(4 * queries));
    attention_outputs<bfloat16> const out{{result.data(), {1, 4, queries, 64}}, {lse.data(), {1, 4, queries}}};
    sage_attention2::forward(cpu{}, p.inputs(), p.options, out, workspace(plan, memory), maps{{}, here, here});
    sage_attention2::regions const places("test", p.shape);
    CHECK(is_same(found.bytes, memory.data(), places.query_codes));
    CHECK(is_same(found.bytes, memory.data(), places.query_scales));
    CHECK(is_same(found.bytes, memory.data(), places.key_codes));
    CHECK(is_same(found.bytes, memory.data(), places.key_scales));
    CHECK(is_same(found.bytes, memory.data(), places.key_mean));
    CHECK(error_of(found.found.result, as_doubles(result)).relative_l1 < 4e-3);
    CHECK(farthest(found.found.log_sum_exp, std::vector<double>(lse.begin(), lse.end())) < 0.0607);  // e4m3 weights
  }
}
