// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls with so many queries that values are widened to fp16 once, before forward_by_warps, on GPUs whose program that
// is (sm_80's code): against attention in double, and bit for bit against thread blocks that widen codes themselves. On
// sm_90a the same calls run by its own program.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/exec/explain.hpp>

#include "algorithm/attention/attention_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

/// A problem whose keys and values have offsets, as those of models do.
attention_problem<bfloat16> problem_of(attention_shape const& s, attention_options const& options = {}) {
  auto p = make_attention_problem<bfloat16>(s, testing::offset_channels{as_size(s.channels), 0.06, 2.0},
                                            testing::offset_channels{as_size(s.channels), 0.06, 4.0},
                                            testing::offset_channels{as_size(s.channels_of_values()), 1.0, 0.5});
  p.options = options;
  return p;
}

/// Compares forward() with attention in double.
template <class Attention = sage_attention2>
void check_against_double(attention_problem<bfloat16> const& p, head_layout layout = head_layout::heads_first) {
  attention_shape const& s = p.shape;
  CAPTURE(s.queries, s.keys, s.channels, s.value_channels, p.options.is_causal, p.options.window_left);
  auto const run = run_on_device<Attention, bfloat16>(tessera::cuda{}, p, layout);
  CHECK(run.is_clean);
  auto const expected = attention_by_formula(p);
  auto const error = error_of(run.found.result, expected.result);
  CAPTURE(error.relative_l1, error.cosine);
  CHECK(error.relative_l1 < 2e-2);
  CHECK(error.cosine > 0.9995);
  CHECK(farthest(run.found.log_sum_exp, expected.log_sum_exp) < 0.0607);  // log(17 / 16)
}

/// Results over a problem's codes, with memory for values in fp16 and without.
struct both_ways {
  std::vector<bfloat16> widened_once;
  std::vector<bfloat16> widened_by_blocks;
  bool is_by_halves;  ///< whether the device's program multiplies values as fp16
};

both_ways run_both_ways(tessera::cuda const& exec, attention_problem<bfloat16> const& p) {
  attention_shape const& s = p.shape;
  device_attention<bfloat16> const in(exec, p, head_layout::heads_first);
  auto const plan = sage_attention2::plan_forward(exec, s);
  auto memory = to_device(exec, std::vector<std::byte>(as_size(plan.bytes()), std::byte{0xa5}));
  workspace const space(plan, memory);
  auto codes = sage_attention2::operands(s, space);
  codes.queries.mean_scores = {};
  sage_attention2::quantize(exec, s, in.inputs(), {}, codes, space);
  std::vector<bfloat16> const rubbish(as_size(s.batch * s.query_heads * s.queries * s.channels_of_values()),
                                      store<bfloat16>(-77.0F));
  auto const run = [&](array_view<float16> halves, std::string& programs) {
    auto result = to_device(exec, rubbish);
    attention_call<sage_attention2::method, bfloat16> call{
        s, p.options, codes, {{result.data(), {s.batch, s.query_heads, s.queries, s.channels_of_values()}}}};
    call.halves_of_values = halves;
    programs = explain(exec, call).text();
    sage_attention2::forward(exec, call);
    return to_host(exec, result);
  };
  std::string once;
  std::string by_blocks;
  auto const halves = sage_attention2::halves_of_values(exec, s, space);
  both_ways found{run(halves, once), run({}, by_blocks), false};
  found.is_by_halves = once.find("forward_by_warps (") != std::string::npos;
  CAPTURE(once, by_blocks);
  CHECK(found.is_by_halves == (halves.size() > 0));
  return found;
}

}  // namespace

TEST_CASE("attention of a thousand queries and more is near the formula in double, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_against_double(problem_of({2, 4, 2, 1031, 777, 128}));
  check_against_double(problem_of({1, 3, 1, 1025, 1300, 80}, {.is_causal = true}));
  check_against_double(problem_of({1, 2, 2, 1100, 515, 64}));
  check_against_double(problem_of({1, 2, 1, 1027, 1027, 64}, {.is_causal = true}), head_layout::tokens_first);
  check_against_double(problem_of({1, 2, 1, 1056, 2049, 112, 48}));
  check_against_double(problem_of({1, 1, 1, 1024, 127, 64, 128}));
  check_against_double(problem_of({1, 2, 1, 1200, 1201, 128}, {.window_left = 130, .window_right = 5}),
                       head_layout::shifted);
  auto p = problem_of({3, 2, 1, 1111, 1400, 128}, {.is_causal = true});
  p.query_lengths = {1111, 0, 300};
  p.key_lengths = {1399, 128, 301};
  check_against_double(p);
}

TEST_CASE("INT4 codes of a thousand queries and more are near the formula in double", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const check = [](attention_problem<bfloat16> const& p) {
    auto const found = run_on_device<sage_attention2_int4, bfloat16>(tessera::cuda{}, p).found;
    auto const expected = attention_by_formula(p);
    CHECK(error_of(found.result, expected.result).relative_l1 < 5e-2);
    CHECK(error_of(found.result, expected.result).cosine > 0.998);
  };
  check(problem_of({1, 2, 1, 1041, 1300, 128}));
  check(problem_of({1, 2, 2, 1025, 1025, 96}, {.is_causal = true}));
}

TEST_CASE("values that are widened once give what thread blocks that widen them do, bit for bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  attention_options const causal{.is_causal = true};
  for (auto const& p : {problem_of({2, 4, 2, 1031, 777, 128}), problem_of({1, 3, 1, 1025, 1300, 80}, causal),
                        problem_of({1, 2, 2, 1100, 515, 64}), problem_of({1, 2, 1, 1300, 1, 128})}) {
    CAPTURE(p.shape.queries, p.shape.keys, p.shape.channels);
    auto const found = run_both_ways(exec, p);
    if (found.is_by_halves) {
      CHECK((found.widened_once == found.widened_by_blocks));
    }
  }
}
