// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/algorithm/attention/dense_attention.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/attention_check.hpp"
#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"
#include "support/message_of.hpp"
#include "support/quantized_reference.hpp"
#include "support/score_functions.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("sequences of a padded batch are attended as if they were alone", "[host]") {
  for (bool const is_causal : {false, true}) {
    auto p = make_attention_problem<bfloat16>({4, 2, 1, 100, 150, 32});
    p.query_lengths = {100, 33, 0, 64};
    p.key_lengths = {150, 70, 150, 0};
    p.options.is_causal = is_causal;
    check_against_codes<finely>(p);
    check_against_codes<finely_int4>(p);
  }
}

namespace {

/// The tokens of a padded batch one sequence behind the other: tokens x heads x channels.
std::vector<bfloat16> pack(std::vector<bfloat16> const& padded, attention_shape const& s, std::int64_t heads,
                           std::int64_t tokens, std::vector<std::int32_t> const& lengths) {
  std::vector<bfloat16> packed;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t token = 0; token < lengths[as_size(b)]; ++token) {
      for (std::int64_t head = 0; head < heads; ++head) {
        auto const from = padded.begin() + ((b * heads + head) * tokens + token) * s.channels;
        packed.insert(packed.end(), from, from + s.channels);
      }
    }
  }
  return packed;
}

std::vector<std::int32_t> starts_of(std::vector<std::int32_t> const& lengths) {
  std::vector<std::int32_t> starts{0};
  for (std::int32_t length : lengths) {
    starts.push_back(starts.back() + length);
  }
  starts.pop_back();
  return starts;
}

head_view<bfloat16> packed_view(std::vector<bfloat16>& values, std::int64_t heads, std::int64_t longest,
                                std::int64_t batch) {
  return {values.data(), {batch, heads, longest, 32}, {0, 32, heads * 32, 1}};
}

}  // namespace

TEST_CASE("sequences one behind the other give what those of a padded batch do", "[host]") {
  cpu const exec;
  auto p = make_attention_problem<bfloat16>({4, 2, 1, 100, 1100, 32});
  p.query_lengths = {100, 33, 0, 64};
  p.key_lengths = {1100, 70, 10, 0};
  auto const expected = run_attention_problem<sage_attention2, bfloat16>(exec, p);
  auto queries = pack(p.queries, p.shape, 2, 100, p.query_lengths);
  auto keys = pack(p.keys, p.shape, 1, 1100, p.key_lengths);
  auto values = pack(p.values, p.shape, 1, 1100, p.key_lengths);
  auto const query_starts = starts_of(p.query_lengths);
  auto const key_starts = starts_of(p.key_lengths);
  attention_inputs<bfloat16> in{packed_view(queries, 2, 100, 4), packed_view(keys, 1, 1100, 4),
                                packed_view(values, 1, 1100, 4)};
  in.query_lengths = p.query_lengths;
  in.key_lengths = p.key_lengths;
  in.query_starts = {query_starts, 197};
  in.key_starts = {key_starts, 1180};
  std::vector<bfloat16> result(queries.size() + 32, bfloat16{0x1234});
  std::vector<float> lse(197 * 2 + 1, -77.0F);
  attention_outputs<bfloat16> const out{packed_view(result, 2, 100, 4), {lse.data(), {4, 2, 100}, {0, 1, 2}}};
  auto const plan = sage_attention2::plan_forward(exec, p.shape);
  buffer<std::byte> memory(exec, plan.bytes());
  sage_attention2::forward(exec, in, {}, out, workspace(plan, memory));
  exec.wait();
  int wrong = 0;
  for (std::int64_t b = 0; b < 4; ++b) {
    for (std::int64_t token = 0; token < p.query_lengths[as_size(b)]; ++token) {
      for (std::int64_t head = 0; head < 2; ++head) {
        std::int64_t const row = (b * 2 + head) * 100 + token;
        std::int64_t const at = (query_starts[as_size(b)] + token) * 2 + head;
        wrong += static_cast<double>(lse[as_size(at)]) == expected.log_sum_exp[as_size(row)] ? 0 : 1;
        for (std::int64_t c = 0; c < 32; ++c) {
          double const found = static_cast<double>(load(result[as_size(at * 32 + c)]));
          wrong += found == expected.result[as_size(row * 32 + c)] ? 0 : 1;
        }
      }
    }
  }
  CHECK(wrong == 0);
  CHECK(result.back().bits == 0x1234);
  CHECK(lse.back() == -77.0F);
  // Starts that lead beyond the tokens read zeros and write nothing.
  std::vector<std::int32_t> const bad{-50, 190, std::numeric_limits<std::int32_t>::max(),
                                      std::numeric_limits<std::int32_t>::min()};
  in.query_starts.first = bad;
  in.key_starts.first = bad;
  sage_attention2::forward(exec, in, {}, out, workspace(plan, memory));
  CHECK(result.back().bits == 0x1234);
  in.query_starts.total = -1;
  CHECK_THROWS_AS(sage_attention2::forward(exec, in, {}, out, workspace(plan, memory)), shape_error);
}

TEST_CASE("sequences with starts whose views, total or lengths do not fit are refused, in every attention", "[host]") {
  cpu const exec{.threads = 1};
  std::vector<bfloat16> numbers(16 * 32);  // of 12 tokens in all, and of two whole sequences in the last case
  std::vector<std::int32_t> const lists{0, 5};
  auto const check_method = [&](auto of_method, std::string const& function) {
    using method = decltype(of_method);
    auto const plan = method::plan_forward(exec, {2, 1, 1, 8, 8, 32});
    buffer<std::byte> memory(exec, plan.bytes());
    auto const message = [&](auto const& change) {
      std::vector<bfloat16> result(12 * 32);
      attention_inputs<bfloat16> in{packed_view(numbers, 1, 8, 2), packed_view(numbers, 1, 8, 2),
                                    packed_view(numbers, 1, 8, 2)};
      in.query_lengths = in.key_lengths = lists;
      in.query_starts = in.key_starts = {lists, 12};
      attention_outputs<bfloat16> out{packed_view(result, 1, 8, 2)};
      change(in, out);
      return message_of([&] { method::forward(exec, in, {}, out, workspace(plan, memory)); });
    };
    CHECK(message([](auto&, auto&) {}) == "");
    CHECK(message([](auto& in, auto&) { in.keys.strides[0] = 256; }) ==
          function +
              ": the keys have a stride of 256 from sequence to sequence but must have 0 where sequences have "
              "starts");
    CHECK(message([](auto&, auto& out) { out.result.strides[0] = 128; }) ==
          function +
              ": the results have a stride of 128 from sequence to sequence but must have 0 where sequences "
              "have starts");
    CHECK(message([](auto& in, auto&) { in.query_starts.total = 0; }) ==
          function + ": the queries of all sequences have 0 tokens but those of the longest up to 8");
    CHECK(message([](auto& in, auto&) { in.key_lengths = {}; }) ==
          function + ": the keys of 2 sequences have starts but no lengths, by which each has 8 tokens, of 12 in all");
    CHECK(message([](auto& in, auto&) {  // each sequence has all of its 8 tokens
            in.key_lengths = {};
            in.key_starts.total = 16;
          }) == "");
  };
  check_method(sage_attention2{}, "attention.forward");
  check_method(dense_attention{}, "dense_attention.forward");
}

namespace {

/// Replaces queries or keys by what a function that they are read through makes of them.
template <class Map>
void apply(Map const& map, std::vector<float>& values, std::int64_t heads, std::int64_t tokens, std::int64_t channels) {
  std::vector<float> const before = values;
  stored_heads<float> const stored{{before.data(), {1, heads, tokens, channels}}};
  for (std::int64_t i = 0; i < heads * tokens * channels; ++i) {
    std::int64_t const row = i / channels;
    values[as_size(i)] = map(stored, 0, row / tokens, row % tokens, i % channels);
  }
}

/// Checks attention that reads queries and keys through functions against attention over what the functions make of
/// them, and against the formula on that.
template <class Attention, class Queries, class Keys>
void check_maps(Queries const& queries, Keys const& keys, double apart_from_formula) {
  cpu const exec;
  auto p = make_attention_problem<float>({1, 2, 1, 140, 140, 32});
  std::vector<float> results[2] = {std::vector<float>(2 * 140 * 32), std::vector<float>(2 * 140 * 32)};
  auto const plan = Attention::plan_forward(exec, p.shape);
  buffer<std::byte> memory(exec, plan.bytes());
  attention_outputs<float> const out{{results[0].data(), {1, 2, 140, 32}}};
  Attention::forward(exec, p.inputs(), {}, out, workspace(plan, memory),
                     attention_functions<no_bias, Queries, Keys>{{}, queries, keys});
  apply(queries, p.queries, 2, 140, 32);
  apply(keys, p.keys, 1, 140, 32);
  attention_outputs<float> const after{{results[1].data(), {1, 2, 140, 32}}};
  Attention::forward(exec, p.inputs(), {}, after, workspace(plan, memory));
  exec.wait();
  CHECK(results[0] == results[1]);
  auto const expected = attention_by_formula(p);
  CHECK(error_of(as_doubles(results[0]), expected.result).relative_l1 < apart_from_formula);
}

}  // namespace

TEST_CASE("functions on the way in give what rotating or normalizing queries and keys before does", "[host]") {
  map_tables const tables(140, 32);
  tessera_test::rotated const turn{{tables.cosines.data(), {140, 16}}, {tables.sines.data(), {140, 16}}};
  normalized const norm{tables.weights, 1e-6F};
  check_maps<sage_attention2_int4>(turn, turn, 0.1);
  check_maps<sage_attention2_int4>(norm, norm, 0.1);
  check_maps<sage_attention2>(norm, as_stored{}, 0.02);
  check_maps<sage_attention2>(normalized_and_rotated{norm, turn}, normalized_and_rotated{norm, turn}, 0.02);
}

TEST_CASE("a sink takes weight and has no value", "[host]") {
  auto p = make_attention_problem<bfloat16>({2, 4, 2, 66, 150, 32});
  p.sinks = {-3.0F, 1.0F, 6.0F, 40.0F};
  p.options.is_causal = true;
  cpu const exec;
  auto const made = make_operands<finely>(exec, p);
  auto const found = run_attention_problem<finely, float>(exec, p);
  // In the reference scores are without those of the mean key, and so must the sink be, which differs by row.
  auto const expected = attention_by_formula(p);
  CHECK(error_of(found.result, expected.result).relative_l1 < 0.02);
  CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 0.1);
  using plain = attention<eight, smoothed<half_values>>;
  check_against_codes<plain>(p);
  p.shape.keys = 0;
  p.keys.clear();
  p.values.clear();
  auto const alone = run_attention_problem<finely, float>(exec, p);
  CHECK(alone.result == std::vector<double>(alone.result.size(), 0.0));
  CHECK(alone.log_sum_exp[66 * 3 + 5] == Approx(40.0));
}

TEST_CASE("attention is right for its codes on shapes, masks, lengths and sinks taken at random", "[host]") {
  for (std::uint64_t round = 0; round < 12; ++round) {
    auto pick = [&, at = std::uint64_t{0}](std::int64_t low, std::int64_t high) mutable {
      auto const width = static_cast<std::uint64_t>(high - low + 1);
      return low + static_cast<std::int64_t>(testing::hash(99 + round, at++) % width);
    };
    std::int64_t const key_heads = pick(1, 2);
    attention_shape const s{pick(1, 2), key_heads * pick(1, 3), key_heads, pick(0, 150), pick(0, 400), 16 * pick(1, 5)};
    auto p = make_attention_problem<bfloat16>(s, 7 * round);
    p.options = {pick(0, 1) == 0 ? 0.0F : 0.07F, pick(0, 1) == 0, pick(-1, 1) * pick(0, 300), pick(-1, 0) * pick(0, 1)};
    p.options.window_left = std::max(p.options.window_left, std::int64_t{-1});
    std::int64_t const cut = pick(0, 3);
    for (std::int64_t b = 0; b < s.batch; ++b) {
      if (cut % 2 == 1) {
        p.query_lengths.push_back(static_cast<std::int32_t>(pick(0, s.queries)));
      }
      if (cut / 2 == 1) {
        p.key_lengths.push_back(static_cast<std::int32_t>(pick(0, s.keys)));
      }
    }
    CAPTURE(round);
    check_against_codes<finely>(p);
    check_against_codes<finely_int4>(p);
    using plain = attention<symmetric_quantizer<8, per_warp>, half_values>;
    p.sinks = attention_samples<float>(testing::gauss{2.0}, round, 1, s.query_heads);
    check_against_codes<plain>(p);
  }
}

TEST_CASE("a bias is added to scores, and minus infinity masks", "[host]") {
  auto p = make_attention_problem<bfloat16>({1, 2, 1, 70, 70, 32});
  p.options.is_causal = true;
  cpu const exec;
  slope_bias const bias{0.05F};
  auto const made = make_operands<finely>(exec, p);
  auto const expected =
      attention_by_codes(p, made, [&](std::int64_t b, std::int64_t h, std::int64_t query, std::int64_t key) {
        return static_cast<double>(bias(b, h, query, key));
      });
  auto const found = run_attention_problem<finely, float>(exec, p, bias);
  CHECK(farthest(found.result, expected.result) < 2e-3);
  CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 2e-5);
}

TEST_CASE("a list of tiles leaves keys out, and what is no tile is passed over", "[host]") {
  auto p = make_attention_problem<bfloat16>({1, 2, 1, 130, 700, 32});
  // Two heads of three blocks of 64 queries; six tiles of 128 keys. Rubbish lies behind each count.
  std::vector<std::vector<std::int32_t>> const lists{{0, 2, 5},          {}, {5, -1, 1, 6, 1000000}, {3},
                                                     {0, 1, 2, 3, 4, 5}, {4}};
  for (auto const& list : lists) {
    p.list_counts.push_back(static_cast<std::int32_t>(list.size()));
    for (std::size_t i = 0; i < 8; ++i) {
      p.list_tiles.push_back(i < list.size() ? list[i] : 2);
    }
  }
  cpu const exec;
  for (bool const is_causal : {false, true}) {
    p.options.is_causal = is_causal;
    auto const made = make_operands<finely>(exec, p);
    auto const expected =
        attention_by_codes(p, made, [&](std::int64_t, std::int64_t head, std::int64_t query, std::int64_t key) {
          auto const& list = lists[as_size(head * 3 + query / 64)];
          bool const is_there = std::find(list.begin(), list.end(), key / 128) != list.end();
          return is_there ? 0.0 : -std::numeric_limits<double>::infinity();
        });
    auto const found = run_attention_problem<finely, float>(exec, p);
    CHECK(farthest(found.result, expected.result) < 2e-3);
    CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 2e-5);
    CHECK(found.log_sum_exp[100] == -static_cast<double>(infinity));
  }
  p.list_counts.assign(6, -3);
  CHECK(run_attention_problem<finely, float>(exec, p).result == std::vector<double>(2 * 130 * 32, 0.0));
}

TEST_CASE("the keys of few queries are shared among groups, and splits are merged", "[host][slow]") {
  cpu const exec;
  for (attention_shape const& s : {attention_shape{1, 2, 1, 1, 2500, 32}, attention_shape{2, 1, 1, 70, 1100, 80}}) {
    CHECK_THAT(finely::plan_forward(exec, s).describe(), contains("splits of rows"));
    CHECK(finely::partials(s, workspace(finely::plan_forward(exec, s),
                                        buffer<std::byte>(finely::plan_forward(exec, s).bytes()).view()))
              .splits() == s.keys / 512);
    check_shape<finely>(s);
    check_shape<finely>(s, {.is_causal = true, .window_left = 700});
    check_shape<finely_int4>(s, {.is_causal = true});
  }
  auto p = make_attention_problem<bfloat16>({2, 2, 1, 70, 1100, 32});
  p.query_lengths = {70, 3};
  p.key_lengths = {0, 900};
  p.sinks = {2.0F, -1.0F};
  check_against_codes<attention<eight, smoothed<half_values>>>(p);
  p.options.is_causal = true;
  auto const one = run_attention_problem<sage_attention2, bfloat16>(cpu{.threads = 1}, p);
  auto const other = run_attention_problem<sage_attention2, bfloat16>(testing::adversary{.seed = 8}, p);
  CHECK(one.result == other.result);
  CHECK(one.log_sum_exp == other.log_sum_exp);
  CHECK(finely::partials({1, 32, 8, 4096, 4096, 32}, workspace(workspace_plan("none"), {})).splits() == 1);
}
