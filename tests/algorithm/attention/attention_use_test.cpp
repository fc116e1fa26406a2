// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

#include "support/attention_check.hpp"
#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"
#include "support/message_of.hpp"
#include "support/quantized_reference.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Keys and values are quantized first, and later, in another workspace, queries.
template <class Method>
attention_results run_later(attention_problem<bfloat16> const& p) {
  cpu const exec{.threads = 1};
  attention_shape const& s = p.shape;
  auto const all = p.inputs();
  quantize_options const cached{.parts = {.queries = false}};
  auto const cache_plan = Method::plan_quantize(exec, s, cached);
  buffer<std::byte> cache_memory(exec, cache_plan.bytes());
  workspace const cache_space(cache_plan, cache_memory);
  auto const cache = Method::operands(s, cache_space, cached);
  Method::quantize(exec, s, attention_inputs<bfloat16>{{}, all.keys, all.values}, cached, cache, cache_space);
  quantize_options const later{.parts = {.keys = false, .values = false}};
  auto const plan = Method::plan_quantize(exec, s, later);
  CHECK(plan.bytes() < cache_plan.bytes());
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  auto heads = Method::operands(s, space, later);
  heads.keys = cache.keys;
  heads.values = cache.values;
  Method::quantize(exec, s, attention_inputs<bfloat16>{all.queries, {}, {}}, later, heads, space);
  std::vector<bfloat16> result(p.queries.size());
  std::vector<float> lse(as_size(s.batch * s.query_heads * s.queries));
  attention_outputs<bfloat16> const out{{result.data(), {s.batch, s.query_heads, s.queries, s.channels}},
                                        {lse.data(), {s.batch, s.query_heads, s.queries}}};
  Method::forward(exec, attention_call<typename Method::method, bfloat16>{s, {}, heads, out});
  exec.wait();
  return {as_doubles(result), std::vector<double>(lse.begin(), lse.end())};
}

}  // namespace

TEST_CASE("keys and values that were quantized before serve queries that come later", "[host]") {
  cpu const exec{.threads = 1};
  auto const p = make_attention_problem<bfloat16>({1, 4, 2, 3, 200, 64});
  auto const expected = run_attention_problem<sage_attention2, bfloat16>(exec, p);
  auto const found = run_later<sage_attention2>(p);
  CHECK(found.result == expected.result);
  CHECK(found.log_sum_exp == expected.log_sum_exp);
  // Scores of mean queries are then those of codes: with 8 bits for each token of a key hardly others.
  using method = attention<smoothed<smoothed<symmetric_quantizer<8, per_token>>, block_mean>, half_values>;
  auto const by_keys = run_attention_problem<method, bfloat16>(exec, p);
  auto const by_codes = run_later<method>(p);
  CHECK(by_codes.result != by_keys.result);
  CHECK(error_of(by_codes.result, by_keys.result).relative_l1 < 0.02);
  CHECK(farthest(by_codes.log_sum_exp, by_keys.log_sum_exp) < 0.02);
}

TEST_CASE("keys that were kept in 4 bits, two to a byte, serve as those in bytes do", "[host]") {
  using in_bytes = attention<smoothed<smoothed<symmetric_quantizer<4, per_thread>, sampled_mean>, block_mean>,
                             sampled_range<float8_quantizer<float8_e4m3>>, piecewise_linear_softmax>;
  auto const p = make_attention_problem<bfloat16>({1, 4, 2, 66, 200, 48});
  auto const expected = run_later<in_bytes>(p);
  auto const found = run_later<sage_attention2_int4>(p);
  CHECK(found.result == expected.result);
  CHECK(found.log_sum_exp == expected.log_sum_exp);
}

TEST_CASE("results may have any strides, and nothing between them is touched", "[host]") {
  cpu const exec{.threads = 1};
  auto const p = make_attention_problem<bfloat16>({2, 2, 1, 66, 70, 32});
  auto const expected = run_attention_problem<sage_attention2, bfloat16>(exec, p);
  std::vector<bfloat16> memory(2 * 66 * 2 * 40, bfloat16{0x1234});
  head_view<bfloat16> const result(memory.data(), {2, 2, 66, 32}, {66 * 80, 40, 80, 1});
  auto const plan = sage_attention2::plan_forward(exec, p.shape);
  buffer<std::byte> bytes(exec, plan.bytes());
  sage_attention2::forward(exec, p.inputs(), {}, attention_outputs<bfloat16>{result}, workspace(plan, bytes));
  exec.wait();
  int wrong = 0;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    std::size_t const c = i % 40;
    std::size_t const row = ((i / 5280) * 2 + i / 40 % 2) * 66 + i / 80 % 66;
    wrong += c < 32 ? (static_cast<double>(load(memory[i])) == expected.result[row * 32 + c] ? 0 : 1)
                    : (memory[i].bits == 0x1234 ? 0 : 1);
  }
  CHECK(wrong == 0);
}

TEST_CASE("a plan counts a million tokens and refuses what is no size", "[host]") {
  cpu const exec{.threads = 1};
  auto const plan = sage_attention2::plan_forward(exec, {4, 32, 8, 1 << 20, 1 << 20, 128});
  CHECK(plan.bytes() > (std::int64_t{4} * 48 << 20) * 128);
  CHECK(plan.bytes() < (std::int64_t{4} * 48 << 20) * 140);
  CHECK_THAT(plan.describe(), contains("codes of keys"));
  CHECK_THROWS_AS(sage_attention2::plan_forward(exec, {1, 1, 1, std::int64_t{1} << 60, 1, 128}), shape_error);
}

TEST_CASE("no extent of attention wraps its plan", "[host]") {
  cpu const exec{.threads = 1};
  attention_shape const plain{2, 4, 2, 66, 200, 64};
  std::int64_t const least = sage_attention2::plan_forward(exec, plain).bytes();
  for (std::int64_t attention_shape::*const extent :
       {&attention_shape::batch, &attention_shape::query_heads, &attention_shape::queries, &attention_shape::keys}) {
    for (int log2 = 20; log2 < 63; ++log2) {
      for (std::int64_t const beside : {0, 4}) {
        attention_shape shape = plain;
        shape.*extent = (std::int64_t{1} << log2) + beside;
        CAPTURE(log2, beside);
        for (quantized_parts const parts : {quantized_parts{}, quantized_parts{.queries = false, .values = false}}) {
          // As many bytes as codes of keys alone have elements, or a refusal.
          bool const of_keys = extent == &attention_shape::batch || extent == &attention_shape::keys;
          try {
            std::int64_t const bytes = sage_attention2::plan_quantize(exec, shape, {.parts = parts}).bytes();
            CHECK(bytes >= (of_keys ? shape.*extent : least / 100));
          } catch (shape_error const& problem) {
            CHECK_THAT(problem.what(), contains("attention.quantize: "));
          }
        }
      }
    }
  }
  CHECK_THROWS_WITH(sage_attention2::plan_forward(exec, {std::int64_t{1} << 61, 8, 8, 0, 0, 64}),
                    contains("attention.forward: there are 2305843009213693952 sequences"));
  CHECK_THROWS_WITH(sage_attention2::plan_forward(exec, {std::int64_t{1} << 48, 1 << 20, 1, 1, 1, 64}),
                    contains("attention.forward: ") && contains("is not a size"));
}

TEST_CASE("attention says what does not fit together", "[host]") {
  cpu const exec{.threads = 1};
  auto const p = make_attention_problem<bfloat16>({2, 4, 2, 5, 6, 32});
  std::vector<bfloat16> memory(4 * 2 * 5 * 32);
  std::vector<float> numbers(100);
  auto const plan = sage_attention2::plan_forward(exec, p.shape);
  buffer<std::byte> bytes(exec, plan.bytes());
  head_view<bfloat16> const result(memory.data(), {2, 4, 5, 32});
  auto const message = [&](attention_inputs<bfloat16> const& in, attention_options const& options,
                           attention_outputs<bfloat16> const& out) -> std::string {
    return message_of([&] { sage_attention2::forward(exec, in, options, out, workspace(plan, bytes)); });
  };
  auto in = p.inputs();
  CHECK(message(in, {}, {result}) == "");
  CHECK(message(in, {.softmax_scale = -1.0F}, {result}) ==
        "attention.forward: the scale of the softmax is -1.000000 but must be finite and not negative");
  CHECK(message(in, {.softmax_scale = infinity}, {result}) ==
        "attention.forward: the scale of the softmax is inf but must be finite and not negative");
  CHECK_THAT(message(in, {.softmax_scale = std::numeric_limits<float>::quiet_NaN()}, {result}),
             contains("nan but must be finite and not negative"));
  CHECK(message(in, {.window_left = -2}, {result}) ==
        "attention.forward: the window has -2 keys to the left and -1 to the right but neither must be below -1");
  CHECK(message(in, {}, {}) == "attention.forward: the result has no memory but 40 rows");
  CHECK(message(in, {}, {{memory.data(), {2, 4, 5, 16}}}) ==
        "attention.forward: dimension 3 of the result has 16 elements but needs 32");
  CHECK(message(in, {}, {{memory.data(), {2, 4, 5, 32}, {640, 0, 32, 1}}}) ==
        "attention.forward: dimension 1 of the result has 4 elements with a stride of 0");
  CHECK(message(in, {}, {result, {numbers.data(), {2, 4, 6}}}) ==
        "attention.forward: dimension 2 of the log-sum-exps has 6 elements but needs 5");
  in.sinks = {numbers.data(), 3};
  CHECK(message(in, {}, {result}) == "attention.forward: dimension 0 of the sinks has 3 elements but needs 4");
  in = p.inputs();
  std::vector<std::int32_t> const lengths{1, 2, 3};
  in.key_lengths = lengths;
  CHECK(message(in, {}, {result}) ==
        "attention.forward: dimension 0 of the lengths of keys has 3 elements but needs 2");
  in = p.inputs();
  in.keys = {p.keys.data(), {2, 2, 6, 16}};
  CHECK(message(in, {}, {result}) == "attention.forward: keys have 16 channels but queries have 32");
  in.keys = {p.keys.data(), {1, 2, 6, 32}};
  CHECK(message(in, {}, {result}) == "attention.forward: keys have 1 sequences but queries have 2");
  in.keys = {p.keys.data(), {2, 3, 6, 32}};
  CHECK(message(in, {}, {result}) ==
        "attention.forward: there are 4 query heads, which are no whole number for each of 3 key heads");
  in = p.inputs();
  in.values = {p.values.data(), {2, 2, 5, 32}};
  CHECK(message(in, {}, {result}) ==
        "attention.forward: dimension 2 of the values has 5 elements but that of the keys has 6");
  in = p.inputs();
  in.values.data = nullptr;
  in.values.extents[2] = 6;
  CHECK(message(in, {}, {result}) == "attention.forward: the values have no memory but 768 elements");
  in = p.inputs();
  in.sinks = {nullptr, 4};
  CHECK(message(in, {}, {result}) == "attention.forward: the sinks have no memory but 4 elements");
  in = p.inputs();
  in.query_lengths = {nullptr, 2};
  CHECK(message(in, {}, {result}) == "attention.forward: the lengths of queries have no memory but 2 elements");
  in = p.inputs();
  CHECK(message(in, {}, {result, {nullptr, {2, 4, 5}}}) ==
        "attention.forward: the log-sum-exps have no memory but 40 elements");
  auto const tiny = sage_attention2::plan_forward(exec, {1, 4, 2, 5, 6, 32});
  CHECK_THROWS_WITH(sage_attention2::forward(exec, in, {}, attention_outputs<bfloat16>{result}, workspace(tiny, bytes)),
                    "attention.forward: the workspace is of a plan of " + std::to_string(tiny.bytes()) +
                        " bytes but 2 sequences of 4 and 2 heads, 5 queries and 6 keys, of 32 channels, need " +
                        std::to_string(plan.bytes()));
  in.values = {p.values.data(), {2, 2, 6, 16}};
  CHECK(message(in, {}, {result}) == "attention.forward: dimension 3 of the result has 32 elements but needs 16");
  in.values = {p.values.data(), {2, 2, 6, 24}};
  CHECK(message(in, {}, {result}) ==
        "attention.forward: heads of values have 24 channels but must have a multiple of 16 up to 256");
  in.values = {p.values.data(), {2, 2, 6, 0}};
  CHECK(message(in, {}, {result}) == "attention.forward: values have 0 channels but keys 32");
  in.queries = {p.queries.data(), {2, 4, 5, 24}};
  in.values = {p.values.data(), {2, 2, 6, 24}};
  in.keys = in.values = {p.keys.data(), {2, 2, 6, 24}};
  CHECK(message(in, {}, {result}) ==
        "attention.forward: heads have 24 channels but must have a multiple of 16 up to 256");
}

TEST_CASE("scores of mean queries are refused where queries are not smoothed", "[host]") {
  cpu const exec{.threads = 1};
  auto const p = make_attention_problem<bfloat16>({1, 2, 1, 5, 6, 32});
  auto const made = make_operands<sage_attention2>(exec, p);
  std::vector<bfloat16> memory(2 * 5 * 32);
  std::vector<float> scores(2 * 128);
  auto heads = made.heads;
  heads.queries.corrections = {scores.data(), {1, 2, 1, 128}};
  attention_call<sage_attention2::method, bfloat16> const call{p.shape, {}, heads, {{memory.data(), {1, 2, 5, 32}}}};
  CHECK(message_of([&] { sage_attention2::forward(exec, call); }) ==
        "attention.forward: there are scores of mean queries, but the method does not smooth queries");
}

TEST_CASE("operands that are missing or do not fit are refused", "[host]") {
  cpu const exec{.threads = 1};
  auto const p = make_attention_problem<bfloat16>({1, 2, 1, 5, 6, 32});
  using method = sage_attention2_int4;
  auto const made = make_operands<method>(exec, p);
  std::vector<bfloat16> memory(2 * 5 * 32);
  std::vector<float> lse(2 * 5);
  head_view<bfloat16 const> uncoded;
  auto const message = [&](method::heads const& heads) -> std::string {
    return message_of([&] {
      attention_call<method::method, bfloat16> call{
          p.shape, {}, heads, {{memory.data(), {1, 2, 5, 32}}, {lse.data(), {1, 2, 5}}}};
      call.queries = uncoded;
      method::forward(exec, call);
    });
  };
  CHECK(message(made.heads) == "");
  auto heads = made.heads;
  heads.keys.codes = {};
  CHECK(message(heads) == "attention.forward: the codes of keys are null");
  heads = made.heads;
  heads.values.scales.extents[2] = 16;
  CHECK(message(heads) == "attention.forward: dimension 2 of the scales of values has 16 elements but needs 32");
  heads = made.heads;
  heads.queries.codes.strides[2] = 64;
  CHECK(message(heads) ==
        "attention.forward: the codes of queries are not contiguous: the last two strides are 64 and 1");
  heads = made.heads;
  heads.queries.corrections = {};
  CHECK(message(heads) == "attention.forward: the scores of mean queries are null");
  heads = made.heads;
  heads.queries.correction_ranges = {};
  CHECK(message(heads) == "attention.forward: the ranges of scores of mean queries are null");
  heads = made.heads;
  heads.queries.mean_scores = {};
  CHECK(message(heads) == "attention.forward: log-sum-exps and sinks need the scores of the mean key, which are null");
  uncoded = {memory.data(), {1, 2, 5, 32}};
  CHECK(message(made.heads) ==
        "attention.forward: the call has queries without codes, which only attention.forward of inputs gives programs");
  auto const quantizing = [&](attention_inputs<bfloat16> const& in, method::heads const& out) -> std::string {
    auto const plan = method::plan_quantize(exec, p.shape);
    buffer<std::byte> bytes(exec, plan.bytes());
    return message_of([&] { method::quantize(exec, p.shape, in, {}, out, workspace(plan, bytes)); });
  };
  auto const in = p.inputs();
  heads = made.heads;
  heads.keys.codes = {};
  CHECK(quantizing({in.queries, {}, {}}, heads) ==
        "attention.quantize: smoothed queries need keys or their codes, which are null");
  heads = made.heads;
  heads.keys.mean = {};
  CHECK(quantizing({in.queries, {}, {}}, heads) == "attention.quantize: queries need the mean of keys, which is null");
  CHECK(quantizing({{}, in.keys, {}}, heads) == "attention.quantize: the means of keys are null");
}
