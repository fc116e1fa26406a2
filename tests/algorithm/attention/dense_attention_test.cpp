// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <tessera/algorithm/attention/dense_attention.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/attention_reference.hpp"
#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

constexpr float dense_nan = std::numeric_limits<float>::quiet_NaN();
constexpr float dense_infinity = std::numeric_limits<float>::infinity();

/// Results are within the rounding of weights of values that are not above 20.
template <class T>
void check_dense(attention_problem<T> const& p) {
  attention_shape const& s = p.shape;
  CAPTURE(s.batch, s.query_heads, s.key_heads, s.queries, s.keys, s.channels);
  CAPTURE(p.options.is_causal, p.options.window_left, p.options.window_right);
  auto const expected = attention_by_formula(p);
  auto const found = run_attention_problem<dense_attention, float>(cpu{.threads = 2}, p);
  double const rounding = std::is_same_v<T, bfloat16> ? 1.0 / 256 : 1.0 / 2048;
  CHECK(farthest(found.result, expected.result) < 8 * rounding);
  CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 2e-5);
}

}  // namespace

TEST_CASE("dense_attention is attention, whatever the extents", "[host][slow][threads]") {
  for (std::int64_t const keys : {0, 1, 7, 127, 128, 129}) {
    check_dense(make_attention_problem<bfloat16>({1, 1, 1, 3, keys, 64}));
  }
  for (std::int64_t const queries : {0, 1, 7, 63, 64, 65}) {
    auto p = make_attention_problem<bfloat16>({1, 2, 1, queries, 70, 16});
    check_dense(p);
    p.options.is_causal = true;
    check_dense(p);
  }
  check_dense(make_attention_problem<float16>({2, 4, 2, 33, 140, 80}));
  check_dense(make_attention_problem<bfloat16>({1, 1, 1, 5, 150, 256}));
  check_dense(make_attention_problem<bfloat16>({0, 2, 2, 5, 5, 16}));
}

TEST_CASE("dense_attention has masks, windows, scales, lengths and sinks", "[host][slow][threads]") {
  auto p = make_attention_problem<bfloat16>({2, 4, 2, 150, 290, 48});
  for (attention_options const& options :
       {attention_options{.is_causal = true}, attention_options{.softmax_scale = 0.5F, .window_left = 100},
        attention_options{.window_left = 20, .window_right = 30},
        attention_options{.is_causal = true, .window_left = 0}, attention_options{.window_right = 3}}) {
    p.options = options;
    check_dense(p);
  }
  p.options = {.is_causal = true};
  p.sinks = {0.5F, -3.0F, 100.0F, -dense_infinity};
  check_dense(p);
  p.query_lengths = {150, 31};
  p.key_lengths = {0, 129};
  check_dense(p);
  p.key_lengths = {20, 290};  // the first queries see no key
  check_dense(p);
}

TEST_CASE("dense_attention does not read tokens beyond a sequence's length", "[host][threads]") {
  auto p = make_attention_problem<bfloat16>({2, 2, 1, 20, 140, 16});
  p.query_lengths = {20, 3};
  p.key_lengths = {130, 5};
  auto const expected = run_attention_problem<dense_attention, bfloat16>(cpu{.threads = 2}, p);
  attention_shape const& s = p.shape;
  for (std::int64_t i = 0; i < s.batch * s.keys * s.channels; ++i) {
    std::int64_t const token = i / s.channels % s.keys;
    if (token >= p.key_lengths[as_size(i / s.channels / s.keys)]) {
      p.keys[as_size(i)] = p.values[as_size(i)] = store<bfloat16>(dense_nan);
    }
  }
  auto const found = run_attention_problem<dense_attention, bfloat16>(cpu{.threads = 2}, p);
  CHECK(found.result == expected.result);
  CHECK(found.log_sum_exp == expected.log_sum_exp);
}

TEST_CASE("dense_attention makes NaN of rows that see NaN or infinite scores, and of no others", "[host][threads]") {
  for (float const bad : {dense_nan, dense_infinity}) {
    auto p = make_attention_problem<bfloat16>({1, 1, 1, 140, 140, 16});
    p.options.is_causal = true;
    for (std::size_t i = 0; i < p.queries.size(); ++i) {
      p.queries[i] = store<bfloat16>(std::fabs(load(p.queries[i])));  // so that infinite keys have infinite scores
    }
    p.keys[70 * 16 + 3] = store<bfloat16>(bad);
    auto const found = run_attention_problem<dense_attention, bfloat16>(cpu{.threads = 2}, p);
    auto const expected = attention_by_formula(p);
    std::int64_t wrong = 0;
    for (std::size_t query = 0; query < 140; ++query) {
      bool const is_nan = std::isnan(found.result[query * 16]) && std::isnan(found.log_sum_exp[query]);
      bool const is_near = std::fabs(found.result[query * 16] - expected.result[query * 16]) < 0.1 &&
                           std::fabs(found.log_sum_exp[query] - expected.log_sum_exp[query]) < 1e-4;
      wrong += (query >= 70 ? is_nan : is_near) ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
  auto p = make_attention_problem<float16>({1, 1, 1, 4, 200, 16});
  for (std::size_t i = 0; i < p.queries.size(); ++i) {
    p.queries[i] = store<float16>(1.0F);
  }
  p.keys[7] = store<float16>(-dense_infinity);  // a weight of zero
  check_dense(p);
}

TEST_CASE("dense_attention takes lists of tiles, biases and packed sequences", "[host][threads]") {
  auto p = make_attention_problem<bfloat16>({1, 2, 1, 130, 300, 32});
  p.list_counts = {2, 0, 1, 3, 1, 2};
  p.list_tiles = {0, 2, 0, 0, 0, 0, 1, 0, 0, 0, 1, 2, 2, 0, 0, 1, 2, 0};
  auto const found = run_attention_problem<dense_attention, float>(cpu{.threads = 2}, p);
  auto const seen = [&](std::int64_t, std::int64_t head, std::int64_t query, std::int64_t key) {
    std::size_t const list = as_size(3 * head + query / 64);
    for (std::size_t i = 0; i < static_cast<std::size_t>(p.list_counts[list]); ++i) {
      if (p.list_tiles[3 * list + i] == key / 128) {
        return 0.0;
      }
    }
    return -std::numeric_limits<double>::infinity();
  };
  auto const expected = attention_by_formula(p, seen);
  CHECK(farthest(found.result, expected.result) < 0.03);
  CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 2e-5);
  p.list_counts.clear();
  p.list_tiles.clear();
  auto const slope = [](std::int64_t, std::int64_t head, std::int64_t query, std::int64_t key) {
    return 0.01F * static_cast<float>(head + 1) * static_cast<float>(key - query);
  };
  auto const biased = run_attention_problem<dense_attention, float>(cpu{.threads = 2}, p, slope);
  auto const expected_biased = attention_by_formula(p, [&](auto... at) { return static_cast<double>(slope(at...)); });
  CHECK(farthest(biased.result, expected_biased.result) < 0.03);
  CHECK(farthest(biased.log_sum_exp, expected_biased.log_sum_exp) < 2e-5);
}

TEST_CASE("dense_attention takes sequences that lie one behind the other", "[host][threads]") {
  attention_shape const s{3, 2, 2, 50, 50, 16};
  std::vector<std::int32_t> const lengths{50, 7, 20};
  std::vector<std::int32_t> const starts{0, 50, 57};
  constexpr std::int64_t total = 77;
  auto p = make_attention_problem<bfloat16>({1, 2, 2, total, total, 16});
  p.options.is_causal = true;
  auto const packed = [&](std::vector<bfloat16> const& from) {
    return head_view<bfloat16 const>(from.data(), {3, 2, 50, 16}, {0, total * 16, 16, 1});
  };
  std::vector<float> result(p.queries.size() + 16, -77.0F);
  std::vector<float> lse(as_size(2 * total) + 1, -77.0F);
  cpu const exec{.threads = 2};
  auto const plan = dense_attention::plan_forward(exec, s);
  buffer<std::byte> memory(exec, plan.bytes());
  attention_inputs<bfloat16> in{packed(p.queries), packed(p.keys), packed(p.values)};
  in.query_lengths = in.key_lengths = lengths;
  in.query_starts = in.key_starts = {starts, total};
  dense_attention::forward(exec, in, p.options,
                           attention_outputs<float>{{result.data(), {3, 2, 50, 16}, {0, total * 16, 16, 1}},
                                                    {lse.data(), {3, 2, 50}, {0, total, 1}}},
                           workspace(plan, memory));
  exec.wait();
  CHECK(result.back() == -77.0F);
  CHECK(lse.back() == -77.0F);
  double most = 0;
  for (std::size_t sequence = 0; sequence < 3; ++sequence) {
    std::int64_t const count = lengths[sequence];
    attention_problem<bfloat16> own{{1, 2, 2, count, count, 16}, {}, {}, {}, p.options};
    for (std::int64_t head = 0; head < 2; ++head) {
      auto const from = head * total + starts[sequence];
      for (auto const& [to, all] :
           {std::pair{&own.queries, &p.queries}, std::pair{&own.keys, &p.keys}, std::pair{&own.values, &p.values}}) {
        to->insert(to->end(), all->begin() + from * 16, all->begin() + (from + count) * 16);
      }
    }
    auto const expected = attention_by_formula(own);
    for (std::int64_t i = 0; i < 2 * count * 16; ++i) {
      std::int64_t const row = i / 16 / count * total + starts[sequence] + i / 16 % count;
      double const apart = std::fabs(result[as_size(row * 16 + i % 16)] - expected.result[as_size(i)]);
      most = apart <= most ? most : apart;
    }
  }
  CHECK(most < 0.03);
}

TEST_CASE("dense_attention keeps the rules for programs", "[host]") {
  auto p = make_attention_problem<bfloat16>({1, 2, 1, 70, 140, 16});
  p.options.is_causal = true;
  auto const expected = run_attention_problem<dense_attention, bfloat16>(cpu{.threads = 1}, p);
  auto const found = run_attention_problem<dense_attention, bfloat16>(testing::adversary{.seed = 3}, p);
  CHECK(found.result == expected.result);
  CHECK(found.log_sum_exp == expected.log_sum_exp);
}

TEST_CASE("dense_attention says what does not fit together", "[host]") {
  cpu const exec{.threads = 1};
  std::vector<bfloat16> const numbers(2 * 4 * 3 * 8 * 16);
  std::vector<bfloat16> result(numbers.size());
  std::vector<float> floats(numbers.size());
  std::vector<std::int32_t> const lists(64);
  auto const plan = dense_attention::plan_forward(exec, {2, 4, 2, 3, 8, 16});
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  auto const heads = [&](std::int64_t batch, std::int64_t count, std::int64_t tokens, std::int64_t channels) {
    return head_view<bfloat16 const>(numbers.data(), {batch, count, tokens, channels});
  };
  auto const message = [&](auto const& change, attention_options const& options = {}) -> std::string {
    attention_inputs<bfloat16> in{heads(2, 4, 3, 16), heads(2, 2, 8, 16), heads(2, 2, 8, 16)};
    attention_outputs<bfloat16> to{{result.data(), {2, 4, 3, 16}}};
    change(in, to);
    return message_of([&] { dense_attention::forward(exec, in, options, to, space); });
  };
  auto const nothing = [](auto&, auto&) {};
  CHECK(message(nothing) == "");
  CHECK(message([&](auto& in, auto&) { in.queries = heads(2, 3, 3, 16); }) ==
        "dense_attention.forward: there are 3 query heads, which are no whole number for each of 2 key heads");
  CHECK(message([&](auto& in, auto&) { in.keys = heads(1, 2, 8, 16); }) ==
        "dense_attention.forward: keys have 1 sequences but queries have 2");
  CHECK(message([&](auto& in, auto&) { in.keys = heads(2, 2, 8, 8); }) ==
        "dense_attention.forward: keys have 8 channels but queries have 16");
  CHECK(message([&](auto& in, auto&) { in.values = heads(2, 2, 8, 32); }) ==
        "dense_attention.forward: values have 32 channels but must have as many as keys, 16");
  CHECK(message([&](auto& in, auto&) { in.values = heads(2, 2, 7, 16); }) ==
        "dense_attention.forward: dimension 2 of the values has 7 elements but that of the keys has 8");
  CHECK(message([&](auto& in, auto&) { in.values.data = nullptr; }) ==
        "dense_attention.forward: the values have no memory but 512 elements");
  CHECK(message([&](auto& in, auto&) {
          in.key_lengths = {lists.data(), 3};
        }) == "dense_attention.forward: dimension 0 of the lengths of keys has 3 elements but needs 2");
  CHECK(message([&](auto& in, auto&) {
          in.key_starts = {{lists.data(), 2}, -1};
        }) == "dense_attention.forward: sequences have 0 queries and -1 keys in all but neither must be negative");
  CHECK(message([&](auto& in, auto&) {
          in.sinks = {floats.data(), 3};
        }) == "dense_attention.forward: dimension 0 of the sinks has 3 elements but needs 4");
  CHECK(message([&](auto&, auto& to) {
          to.result = {result.data(), {2, 4, 2, 16}};
        }) == "dense_attention.forward: dimension 2 of the result has 2 elements but needs 3");
  CHECK(message([&](auto&, auto& to) {
          to.log_sum_exp = {floats.data(), {2, 4, 1}};
        }) == "dense_attention.forward: dimension 2 of the log-sum-exps has 1 elements but needs 3");
  CHECK_THAT(message(nothing, {.softmax_scale = -1.0F}),
             contains("dense_attention.forward: the scale of the softmax is -1"));
  CHECK_THAT(message(nothing, {.softmax_scale = dense_nan}), contains("the scale of the softmax is nan"));
  CHECK_THAT(message(nothing, {.window_left = -2}), contains("dense_attention.forward: the window has -2 keys"));
  CHECK_THROWS_WITH(dense_attention::plan_forward(exec, {1, 1, 1, 1, 1, 24}),
                    "dense_attention.forward: heads have 24 channels but must have a multiple of 16 up to 256");
  CHECK_THROWS_WITH(dense_attention::plan_forward(exec, {1, 1, 1, 1, 1, 16, 48}),
                    "dense_attention.forward: values have 48 channels but must have as many as keys, 16");
  CHECK_THROWS_WITH(dense_attention::plan_forward(exec, {-1, 1, 1, 1, 1, 16}), contains("none must be negative"));
  workspace_plan const empty("none");
  CHECK_THROWS_WITH(dense_attention::forward(
                        exec, attention_inputs<bfloat16>{heads(1, 1, 3, 16), heads(1, 1, 8, 16), heads(1, 1, 8, 16)},
                        {}, attention_outputs<bfloat16>{{result.data(), {1, 1, 3, 16}}}, workspace(empty, memory)),
                    contains("dense_attention.forward: the workspace is of a plan of 0 bytes but 1 sequences of 1 and "
                             "1 heads, 3 queries and 8 keys, of 16 channels, need "));
}
