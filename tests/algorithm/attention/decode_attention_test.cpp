// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/algorithm/attention/decode_attention.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/attention_reference.hpp"
#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Keys or values in blocks of tokens, in descending order; what is beyond the end of a sequence is NaN.
template <class T>
std::vector<T> in_blocks(std::vector<T> const& from, attention_shape const& s, std::int64_t block_tokens) {
  std::int64_t const each = divide_up(s.keys, block_tokens);
  std::vector<T> made(as_size(s.batch * each * s.key_heads * block_tokens * s.channels),
                      store<T>(std::numeric_limits<float>::quiet_NaN()));
  for (std::int64_t i = 0; i < s.batch * s.key_heads * s.keys; ++i) {
    std::int64_t const token = i % s.keys;
    std::int64_t const head = i / s.keys % s.key_heads;
    std::int64_t const block = s.batch * each - 1 - (i / s.keys / s.key_heads * each + token / block_tokens);
    for (std::int64_t c = 0; c < s.channels; ++c) {
      made[as_size(((block * s.key_heads + head) * block_tokens + token % block_tokens) * s.channels + c)] =
          from[as_size(i * s.channels + c)];
    }
  }
  return made;
}

/// Results by decode_attention, over contiguous heads or blocks of so many tokens, in memory full of garbage.
template <class Exec, class T>
attention_results decode(Exec const& exec, attention_problem<T> const& p, std::int64_t block_tokens = 0) {
  attention_shape const& s = p.shape;
  bool const has_blocks = block_tokens > 0;
  std::int64_t const each = has_blocks ? divide_up(s.keys, block_tokens) : 1;
  auto const keys = has_blocks ? in_blocks(p.keys, s, block_tokens) : p.keys;
  auto const values = has_blocks ? in_blocks(p.values, s, block_tokens) : p.values;
  std::vector<std::int32_t> blocks;
  for (std::int64_t i = s.batch * each; i-- > 0;) {
    blocks.push_back(static_cast<std::int32_t>(i));
  }
  std::vector<std::int32_t> const whole(as_size(s.batch), static_cast<std::int32_t>(s.keys));
  std::int64_t const tokens = has_blocks ? block_tokens : s.keys;
  decode_attention_inputs<T> in{{p.queries.data(), {s.batch, s.query_heads, s.queries, s.channels}},
                                {{keys.data(), {s.batch * each, s.key_heads, tokens, s.channels}},
                                 {values.data(), {s.batch * each, s.key_heads, tokens, s.channels}}}};
  if (has_blocks) {
    in.source.blocks = {blocks.data(), {s.batch, each}};
    in.source.lengths = whole;
  }
  if (!p.key_lengths.empty()) {
    in.source.lengths = p.key_lengths;
  }
  if (!p.query_lengths.empty()) {
    in.query_lengths = p.query_lengths;
  }
  std::vector<float> result(p.queries.size(), -77.0F);
  std::vector<float> lse(as_size(s.batch * s.query_heads * s.queries), -77.0F);
  attention_shape planned = s;
  planned.keys = each * tokens;
  auto const plan = decode_attention::plan_forward(exec, planned);
  std::vector<std::byte> garbage(as_size(plan.bytes()), std::byte{0xff});
  buffer<std::byte> memory(exec, plan.bytes());
  exec.copy(array_view<std::byte const>(garbage.data(), plan.bytes()), memory);
  decode_attention::forward(exec, in, p.options,
                            attention_outputs<float>{{result.data(), {s.batch, s.query_heads, s.queries, s.channels}},
                                                     {lse.data(), {s.batch, s.query_heads, s.queries}}},
                            workspace(plan, memory));
  exec.wait();
  return {as_doubles(result), std::vector<double>(lse.begin(), lse.end())};
}

template <class T>
void check_problem(attention_problem<T> const& p) {
  CAPTURE(p.shape.batch, p.shape.query_heads, p.shape.key_heads, p.shape.queries, p.shape.keys, p.shape.channels);
  auto const expected = attention_by_formula(p);
  cpu const exec{.threads = 2};
  for (std::int64_t const block_tokens : {0, 1, 16, 100}) {
    if (block_tokens > 0 && p.shape.keys == 0) {
      continue;  // a sequence of no blocks
    }
    CAPTURE(block_tokens);
    auto const found = decode(exec, p, block_tokens);
    CHECK(farthest(found.result, expected.result) < 1e-5);
    CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 1e-5);
  }
}

}  // namespace

TEST_CASE("decoding over keys as they are is attention", "[host][slow][threads]") {
  for (bool const is_causal : {false, true}) {
    for (attention_shape const& shape : {attention_shape{2, 8, 2, 1, 700, 128}, attention_shape{1, 3, 1, 4, 65, 48},
                                         attention_shape{2, 2, 2, 3, 1, 1}, attention_shape{1, 4, 4, 2, 0, 32},
                                         attention_shape{1, 2, 1, 5, 513, 256}, attention_shape{0, 2, 1, 5, 9, 16}}) {
      auto p = make_attention_problem<bfloat16>(shape);
      p.options.is_causal = is_causal;
      check_problem(p);
    }
    auto p = make_attention_problem<float>({2, 4, 2, 3, 300, 17});
    p.options = {.softmax_scale = 0.3F, .is_causal = is_causal};
    check_problem(p);
  }
}

TEST_CASE("sequences that are decoded have lengths of their own", "[host][threads]") {
  auto p = make_attention_problem<float16>({3, 4, 2, 4, 600, 64});
  p.options.is_causal = true;
  p.key_lengths = {600, 0, 129};
  p.query_lengths = {4, 2, 0};
  check_problem(p);
}

TEST_CASE("decode_attention keeps the rules for programs", "[host]") {
  auto const p = make_attention_problem<bfloat16>({1, 2, 1, 2, 600, 16});
  auto const expected = decode(cpu{.threads = 1}, p, 16);
  auto const found = decode(testing::adversary{.seed = 3}, p, 16);
  CHECK(found.result == expected.result);
  CHECK(found.log_sum_exp == expected.log_sum_exp);
}

TEST_CASE("decode_attention says what does not fit together", "[host]") {
  cpu const exec{.threads = 1};
  std::vector<float> const numbers(2 * 4 * 3 * 8 * 16);
  std::vector<float> result(numbers.size());
  std::vector<std::int32_t> const lists(64);
  auto const plan = decode_attention::plan_forward(exec, {2, 4, 2, 3, 2048, 16});
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  auto const heads = [&](std::int64_t batch, std::int64_t count, std::int64_t tokens, std::int64_t channels) {
    return head_view<float const>(numbers.data(), {batch, count, tokens, channels});
  };
  decode_attention_inputs<float> const good{heads(2, 4, 3, 16), {heads(2, 2, 8, 16), heads(2, 2, 8, 16)}};
  attention_outputs<float> const out{{result.data(), {2, 4, 3, 16}}};
  auto const message = [&](auto const& change, attention_options const& options = {}) -> std::string {
    auto in = good;
    auto to = out;
    change(in, to);
    return message_of([&] { decode_attention::forward(exec, in, options, to, space); });
  };
  auto const nothing = [](auto&, auto&) {};
  CHECK(message(nothing) == "");
  CHECK(message([&](auto& in, auto&) { in.queries = heads(2, 3, 3, 16); }) ==
        "decode_attention.forward: there are 3 query heads, which are no whole number for each of 2 key heads");
  CHECK(message([&](auto& in, auto&) { in.source.keys = heads(1, 2, 8, 16); }) ==
        "decode_attention.forward: dimension 0 of the keys has 1 elements but needs 2");
  CHECK(message([&](auto& in, auto&) { in.source.values = heads(2, 2, 7, 16); }) ==
        "decode_attention.forward: dimension 2 of the values has 7 elements but needs 8");
  CHECK(message([&](auto& in, auto&) { in.source.keys = heads(2, 2, 16, 8).transposed(2, 3); }) ==
        "decode_attention.forward: channels have a stride of 8 but must have a stride of 1");
  CHECK(message([&](auto&, auto& to) {
          to.log_sum_exp = {result.data(), {2, 4, 3}, {12, 3, 0}};
        }) == "decode_attention.forward: dimension 2 of the log-sum-exps has 3 elements with a stride of 0");
  CHECK(message([&](auto& in, auto&) { in.source.values.data = nullptr; }) ==
        "decode_attention.forward: the values have no memory but 512 elements");
  CHECK(message([&](auto& in, auto&) {
          in.source.blocks = {lists.data(), {3, 1}};
        }) == "decode_attention.forward: dimension 0 of the blocks has 3 elements but needs 2");
  CHECK(message([&](auto& in, auto&) {
          in.source.lengths = {lists.data(), 3};
        }) == "decode_attention.forward: dimension 0 of the lengths of keys has 3 elements but needs 2");
  CHECK(message([&](auto& in, auto&) {
          in.query_lengths = {lists.data(), 1};
        }) == "decode_attention.forward: dimension 0 of the lengths of queries has 1 elements but needs 2");
  CHECK(message([&](auto&, auto& to) {
          to.result = {result.data(), {2, 4, 2, 16}};
        }) == "decode_attention.forward: dimension 2 of the result has 2 elements but needs 3");
  CHECK(message([&](auto&, auto& to) {
          to.log_sum_exp = {result.data(), {2, 4, 1}};
        }) == "decode_attention.forward: dimension 2 of the log-sum-exps has 1 elements but needs 3");
  CHECK_THAT(message(nothing, {.softmax_scale = -1.0F}),
             contains("decode_attention.forward: the scale of the softmax is -1"));
  CHECK_THAT(message(nothing, {.softmax_scale = std::nanf("")}), contains("the scale of the softmax is nan"));
  CHECK(message(nothing, {.window_left = 3}) ==
        "decode_attention.forward: there are windows of 3 and -1 keys but decoding has none");
  CHECK_THROWS_WITH(decode_attention::plan_forward(exec, {1, 1, 1, 1, 1, 257}),
                    "decode_attention.forward: heads have 257 channels but must have from 1 to 256");
  CHECK_THROWS_WITH(decode_attention::plan_forward(exec, {1, 1, 1, 1, 1, 192, 128}),
                    "decode_attention.forward: values have 128 channels but must have as many as keys, 192");
  CHECK_THROWS_WITH(decode_attention::plan_forward(exec, {-1, 1, 1, 1, 1, 16}), contains("none must be negative"));
  std::vector<float> const many(2 * 600 * 16);
  head_view<float const> const long_heads(many.data(), {2, 1, 600, 16});
  std::vector<float> small(2 * 16);
  workspace_plan const empty("none");
  CHECK_THROWS_WITH(
      decode_attention::forward(exec, decode_attention_inputs<float>{heads(2, 1, 1, 16), {long_heads, long_heads}}, {},
                                attention_outputs<float>{{small.data(), {2, 1, 1, 16}}}, workspace(empty, memory)),
      contains("decode_attention.forward: the workspace is of a plan of 0 bytes but 2 sequences of 1 heads, 1 queries "
               "and 600 "
               "keys need "));
}
