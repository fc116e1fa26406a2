// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/attention_reference.hpp"
#include "support/catch.hpp"
#include "support/quantized_reference.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using eight = symmetric_quantizer<8, per_thread>;
using half_values = scaled_float_quantizer<float16>;
/// Its weights are rounded to 11 bits: what is wrong shows.
using finely = attention<smoothed<eight>, half_values>;
using finely_int4 =
    attention<smoothed<smoothed<symmetric_quantizer<4, per_thread>>, block_mean>, smoothed<half_values>>;

/// The results are those of the formula with the codes. Values are up to about 5 in size, scores up to about 30.
template <class Attention, class T>
void check_against_codes(attention_problem<T> const& p, double tolerance = 2e-3) {
  attention_shape const& s = p.shape;
  CAPTURE(s.batch, s.query_heads, s.key_heads, s.queries, s.keys, s.channels);
  CAPTURE(p.options.is_causal, p.options.window_left, p.options.window_right);
  cpu const exec{.threads = 2};
  auto const made = make_operands<Attention>(exec, p);
  auto const expected = attention_by_codes(p, made);
  auto const found = run_attention_problem<Attention, float>(exec, p);
  CHECK(farthest(found.result, expected.result) < tolerance);
  CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 2e-5);
}

template <class Attention>
void check_shape(attention_shape const& s, attention_options const& options = {}) {
  auto p = make_attention_problem<bfloat16>(s);
  p.options = options;
  check_against_codes<Attention>(p);
}

std::vector<double> row_of(attention_problem<bfloat16> const& p, attention_results const& found, std::int64_t row) {
  auto const first = found.result.begin() + row * p.shape.channels;
  return {first, first + p.shape.channels};
}

std::int64_t count_nan(std::vector<double> const& values) {
  std::int64_t count = 0;
  for (double value : values) {
    count += std::isnan(value) ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("attention is right for its codes, whatever the extents", "[host]") {
  for (std::int64_t const tokens : {0, 1, 7, 63, 64, 65, 127, 128, 129}) {
    check_shape<finely>({1, 1, 1, tokens, 130, 32});
    check_shape<finely>({1, 1, 1, 66, tokens, 32});
    check_shape<finely>({1, 1, 1, tokens, tokens, 32}, {.is_causal = true});
    check_shape<finely_int4>({1, 1, 1, tokens, 150, 16});
    check_shape<finely_int4>({1, 1, 1, 70, tokens, 16}, {.is_causal = true});
  }
  for (std::int64_t channels = 16; channels <= 256; channels += 16) {
    check_shape<finely>({1, 2, 1, 20, 140, channels});
  }
  check_shape<finely_int4>({1, 2, 1, 70, 140, 144});
  check_shape<finely>({0, 2, 1, 5, 5, 32});
}

TEST_CASE("query heads share key heads, in every sequence of a batch", "[host]") {
  check_shape<finely>({2, 6, 6, 10, 20, 32});
  check_shape<finely>({2, 6, 2, 70, 20, 32});
  check_shape<finely_int4>({3, 5, 1, 70, 140, 32});
}

TEST_CASE("masks are aligned to the bottom right, and rows that see nothing are zeros", "[host]") {
  for (attention_shape const& s : {attention_shape{1, 2, 1, 150, 150, 32}, attention_shape{1, 1, 1, 5, 300, 32},
                                   attention_shape{1, 1, 1, 200, 30, 32}}) {
    for (std::int64_t const left : {-1, 0, 3, 140}) {
      check_shape<finely>(s, {.is_causal = true, .window_left = left});
      check_shape<finely_int4>(s, {.window_left = left, .window_right = 2});
    }
  }
  auto p = make_attention_problem<bfloat16>({1, 1, 1, 10, 4, 16});
  p.options.is_causal = true;
  auto const found = run_attention_problem<sage_attention2, bfloat16>(cpu{.threads = 1}, p);
  for (std::size_t row = 0; row < 6; ++row) {
    CHECK(found.log_sum_exp[row] == -static_cast<double>(infinity));
    CHECK(row_of(p, found, static_cast<std::int64_t>(row)) == std::vector<double>(16, 0.0));
  }
  CHECK(std::isfinite(found.log_sum_exp[6]));
}

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
  cpu const exec{.threads = 2};
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
  auto const plan = sage_attention2::plan(exec, p.shape);
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

namespace {

/// A rotary embedding by a table.
struct rotated {
  view<float const, 2> cosines;
  view<float const, 2> sines;

  template <class Stored>
  TESSERA_FN float operator()(Stored const& x, std::int64_t sequence, std::int64_t head, std::int64_t token,
                              std::int64_t channel) const {
    std::int64_t const half = cosines.extent(1);
    std::int64_t const i = channel % half;
    float const other = x(sequence, head, token, (channel + half) % (2 * half));
    return x(sequence, head, token, channel) * cosines(token, i) + (channel < half ? -other : other) * sines(token, i);
  }
};

}  // namespace

TEST_CASE("a function on the way in gives what rotating queries and keys before does", "[host]") {
  cpu const exec{.threads = 2};
  auto p = make_attention_problem<float>({1, 2, 1, 140, 140, 32});
  std::vector<float> cosines;
  std::vector<float> sines;
  for (int i = 0; i < 140 * 16; ++i) {
    double const angle = (i / 16) * std::pow(10000.0, -(i % 16) / 16.0);
    cosines.push_back(static_cast<float>(std::cos(angle)));
    sines.push_back(static_cast<float>(std::sin(angle)));
  }
  rotated const map{{cosines.data(), {140, 16}}, {sines.data(), {140, 16}}};
  std::vector<float> results[2] = {std::vector<float>(2 * 140 * 32), std::vector<float>(2 * 140 * 32)};
  auto const plan = sage_attention2_int4::plan(exec, p.shape);
  buffer<std::byte> memory(exec, plan.bytes());
  attention_outputs<float> const out{{results[0].data(), {1, 2, 140, 32}}};
  sage_attention2_int4::forward(exec, p.inputs(), {}, out, workspace(plan, memory), no_bias{},
                                attention_maps<rotated, rotated>{map, map});
  auto const rotate = [&](std::vector<float>& values, std::int64_t heads) {
    std::vector<float> const before = values;
    stored_heads<float> const stored{{before.data(), {1, heads, 140, 32}}};
    for (std::int64_t i = 0; i < heads * 140 * 32; ++i) {
      values[as_size(i)] = map(stored, 0, i / 32 / 140, i / 32 % 140, i % 32);
    }
  };
  rotate(p.queries, 2);
  rotate(p.keys, 1);
  attention_outputs<float> const after{{results[1].data(), {1, 2, 140, 32}}};
  sage_attention2_int4::forward(exec, p.inputs(), {}, after, workspace(plan, memory));
  exec.wait();
  CHECK(error_of(as_doubles(results[0]), as_doubles(results[1])).relative_l1 < 1e-3);  // a product may be contracted
  auto const expected = attention_by_formula(p);
  CHECK(error_of(as_doubles(results[0]), expected.result).relative_l1 < 0.1);
}

TEST_CASE("a sink takes weight and has no value", "[host]") {
  auto p = make_attention_problem<bfloat16>({2, 4, 2, 66, 150, 32});
  p.sinks = {-3.0F, 1.0F, 6.0F, 40.0F};
  p.options.is_causal = true;
  cpu const exec{.threads = 2};
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
  for (std::uint64_t round = 0; round < 40; ++round) {
    auto pick = [&, at = std::uint64_t{0}](std::int64_t low, std::int64_t high) mutable {
      auto const width = static_cast<std::uint64_t>(high - low + 1);
      return low + static_cast<std::int64_t>(testing::hash(99 + round, at++) % width);
    };
    std::int64_t const key_heads = pick(1, 3);
    attention_shape const s{pick(1, 3), key_heads * pick(1, 3), key_heads, pick(0, 200), pick(0, 700), 16 * pick(1, 6)};
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

namespace {

/// Alibi for two heads, and nobody sees key 3.
struct slope_bias {
  float slope;
  TESSERA_FN float operator()(std::int64_t, std::int64_t head, std::int64_t query, std::int64_t key) const {
    return key == 3 ? -infinity : -slope * static_cast<float>(head + 1) * static_cast<float>(query - key);
  }
};

}  // namespace

TEST_CASE("a bias is added to scores, and minus infinity masks", "[host]") {
  auto p = make_attention_problem<bfloat16>({1, 2, 1, 70, 70, 32});
  p.options.is_causal = true;
  cpu const exec{.threads = 2};
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
  cpu const exec{.threads = 2};
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

TEST_CASE("the keys of few queries are shared among groups, and shares are merged", "[host]") {
  cpu const exec{.threads = 2};
  for (attention_shape const& s : {attention_shape{1, 2, 1, 1, 2500, 32}, attention_shape{2, 1, 1, 70, 1100, 80}}) {
    CHECK_THAT(finely::plan(exec, s).describe(), contains("shares of rows"));
    CHECK(finely::partials(s, workspace(finely::plan(exec, s), buffer<std::byte>(finely::plan(exec, s).bytes()).view()))
              .shares() == s.keys / 512);
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
  CHECK(finely::partials({1, 32, 8, 4096, 4096, 32}, workspace(workspace_plan("none"), {})).shares() == 1);
}

TEST_CASE("inputs and results are of three types, and values of four codes", "[host]") {
  attention_shape const s{1, 2, 1, 40, 150, 32};
  check_against_codes<finely>(make_attention_problem<float16>(s));
  check_against_codes<finely>(make_attention_problem<float>(s));
  check_against_codes<attention<eight, half_values>>(make_attention_problem<bfloat16>(s));
  check_against_codes<attention<smoothed<symmetric_quantizer<8, per_tensor>>, half_values>>(
      make_attention_problem<bfloat16>(s));
  check_against_codes<attention<smoothed<symmetric_quantizer<8, per_token>>, half_values>>(
      make_attention_problem<bfloat16>(s));
  check_against_codes<attention<smoothed<symmetric_quantizer<4, per_block>, block_mean>, half_values>>(
      make_attention_problem<bfloat16>(s));
  auto const p = make_attention_problem<bfloat16>(s);
  check_against_codes<sage_attention2>(p, 0.1);
  check_against_codes<attention<eight, float8_quantizer<float8_e5m2>>>(p, 0.2);
  check_against_codes<attention<eight, symmetric_quantizer<8>>>(p, 0.1);
  cpu const exec{.threads = 1};
  auto const exact = run_attention_problem<finely, float>(exec, p);
  auto const in_bf16 = run_attention_problem<finely, bfloat16>(exec, p);
  auto const in_fp16 = run_attention_problem<finely, float16>(exec, p);
  CHECK(error_of(in_bf16.result, exact.result).relative_l1 < 3e-3);
  CHECK(error_of(in_fp16.result, exact.result).relative_l1 < 4e-4);
  CHECK(in_bf16.log_sum_exp == exact.log_sum_exp);
}

TEST_CASE("the attention program keeps the rules for programs, and every executor gives the same bits", "[host]") {
  auto p = make_attention_problem<bfloat16>({1, 2, 1, 70, 150, 32});
  p.options.is_causal = true;
  auto const one = run_attention_problem<sage_attention2, bfloat16>(cpu{.threads = 1}, p);
  auto const two = run_attention_problem<sage_attention2, bfloat16>(cpu{.threads = 2}, p);
  auto const other = run_attention_problem<sage_attention2, bfloat16>(testing::adversary{.seed = 5}, p);
  CHECK(one.result == two.result);
  CHECK(one.result == other.result);
  CHECK(one.log_sum_exp == other.log_sum_exp);
  using varied = attention<smoothed<eight, block_mean>, smoothed<symmetric_quantizer<8>>>;
  p.sinks = {0.5F, 1.5F};
  auto const plain = run_attention_problem<varied, bfloat16>(cpu{.threads = 1}, p);
  auto const shuffled = run_attention_problem<varied, bfloat16>(testing::adversary{.seed = 6}, p);
  CHECK(plain.result == shuffled.result);
  CHECK(plain.log_sum_exp == shuffled.log_sum_exp);
}

TEST_CASE("equal values come back, whatever the weights", "[host]") {
  auto p = make_attention_problem<bfloat16>({1, 1, 1, 70, 300, 32});
  for (std::size_t i = 0; i < p.values.size(); ++i) {
    p.values[i] = store<bfloat16>(0.5F + static_cast<float>(i % 32));
  }
  auto const found = run_attention_problem<sage_attention2, float>(cpu{.threads = 1}, p);
  for (std::size_t i = 0; i < found.result.size(); ++i) {
    REQUIRE(found.result[i] == Approx(0.5 + static_cast<double>(i % 32)).epsilon(1e-6));
  }
}

TEST_CASE("an infinity or a NaN reaches the rows and channels that its group takes part in", "[host]") {
  cpu const exec{.threads = 1};
  auto const clean_problem = make_attention_problem<bfloat16>({1, 1, 1, 80, 300, 32});
  auto const clean = run_attention_problem<sage_attention2, bfloat16>(exec, clean_problem);
  auto p = clean_problem;
  p.queries[as_size(21 * 32 + 3)] = store<bfloat16>(NAN);
  auto found = run_attention_problem<sage_attention2, bfloat16>(exec, p);
  for (std::int64_t row = 0; row < 80; ++row) {
    CHECK(count_nan(row_of(p, found, row)) == (row == 21 || row == 29 ? 32 : 0));
    CHECK((row == 21 || row == 29 || row_of(p, found, row) == row_of(p, clean, row)));
  }
  p = clean_problem;
  p.values[as_size(30 * 32 + 9)] = store<bfloat16>(INFINITY);
  found = run_attention_problem<sage_attention2, bfloat16>(exec, p);
  for (std::size_t i = 0; i < found.result.size(); ++i) {
    REQUIRE((i % 32 == 9 ? std::isnan(found.result[i]) : found.result[i] == clean.result[i]));
  }
  CHECK(found.log_sum_exp == clean.log_sum_exp);
  p = clean_problem;
  p.keys[as_size(200 * 32 + 5)] = store<bfloat16>(-INFINITY);
  found = run_attention_problem<sage_attention2, bfloat16>(exec, p);
  CHECK(count_nan(found.result) == 80 * 32);
  CHECK(count_nan(found.log_sum_exp) == 80);
  p.options.is_causal = true;  // queries 0 to 79 see keys up to 220 to 299, and a group has keys 128, 129, 136 ...
  p.options.window_left = 90;
  found = run_attention_problem<sage_attention2, bfloat16>(exec, p);
  for (std::int64_t row = 0; row < 80; ++row) {
    CHECK(count_nan(row_of(p, found, row)) == (220 + row - 90 <= 249 ? 32 : 0));
  }
  using in_integers = attention<eight, symmetric_quantizer<8>>;
  p.options = {};
  CHECK(count_nan(run_attention_problem<in_integers, bfloat16>(exec, p).result) == 80 * 32);
}

TEST_CASE("scores beyond fp32 make their own rows NaN, and large ones are exact", "[host]") {
  cpu const exec{.threads = 1};
  auto p = make_attention_problem<float>({1, 1, 1, 32, 150, 16});
  for (std::size_t i = 0; i < p.queries.size(); ++i) {
    p.queries[i] = i / 16 % 8 == 3 ? 1e25F : 0.01F * p.queries[i];  // groups of two rows
  }
  for (float& key : p.keys) {
    key *= 1e16F;
  }
  using plain = attention<eight, half_values>;
  auto const found = run_attention_problem<plain, float>(exec, p);
  for (std::size_t row = 0; row < 32; ++row) {
    CHECK(std::isnan(found.log_sum_exp[row]) == (row % 8 == 3));
    CHECK(std::isnan(found.result[row * 16 + 5]) == (row % 8 == 3));
  }
  auto const made = make_operands<plain>(exec, p);
  auto const expected = attention_by_codes(p, made);
  CHECK(found.log_sum_exp[0] == Approx(expected.log_sum_exp[0]).epsilon(1e-6));
}

TEST_CASE("zeros in all channels are attended evenly", "[host]") {
  attention_problem<bfloat16> p{{1, 1, 1, 5, 200, 16}, {}, {}, {}};
  p.queries.assign(5 * 16, bfloat16{0});
  p.keys.assign(200 * 16, bfloat16{0});
  for (std::int64_t i = 0; i < 200 * 16; ++i) {
    p.values.push_back(store<bfloat16>(i % 16 == 2 ? 0.0F : static_cast<float>(i / 16 % 2)));
  }
  auto const found = run_attention_problem<sage_attention2, float>(cpu{.threads = 1}, p);
  for (std::size_t i = 0; i < found.result.size(); ++i) {
    CHECK(found.result[i] == (i % 16 == 2 ? 0.0 : 0.5));
  }
  CHECK(found.log_sum_exp[0] == Approx(std::log(200.0)));
}

namespace {

/// Keys and values are quantized first, and later, in another workspace, queries.
template <class Method>
attention_results run_later(attention_problem<bfloat16> const& p) {
  cpu const exec{.threads = 1};
  attention_shape const& s = p.shape;
  auto const all = p.inputs();
  quantized_parts const cached{.queries = false};
  auto const cache_plan = Method::plan(exec, s, cached);
  buffer<std::byte> cache_memory(exec, cache_plan.bytes());
  workspace const cache_space(cache_plan, cache_memory);
  auto const cache = Method::operands(s, cache_space, cached);
  Method::quantize(exec, s, attention_inputs<bfloat16>{{}, all.keys, all.values}, {}, cache, cache_space, cached);
  quantized_parts const later{.keys = false, .values = false};
  auto const plan = Method::plan(exec, s, later);
  CHECK(plan.bytes() < cache_plan.bytes());
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  auto heads = Method::operands(s, space, later);
  heads.keys = cache.keys;
  heads.values = cache.values;
  Method::quantize(exec, s, attention_inputs<bfloat16>{all.queries, {}, {}}, {}, heads, space, later);
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

TEST_CASE("results may have any strides, and nothing between them is touched", "[host]") {
  cpu const exec{.threads = 1};
  auto const p = make_attention_problem<bfloat16>({2, 2, 1, 66, 70, 32});
  auto const expected = run_attention_problem<sage_attention2, bfloat16>(exec, p);
  std::vector<bfloat16> memory(2 * 66 * 2 * 40, bfloat16{0x1234});
  head_view<bfloat16> const result(memory.data(), {2, 2, 66, 32}, {66 * 80, 40, 80, 1});
  auto const plan = sage_attention2::plan(exec, p.shape);
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
  auto const plan = sage_attention2::plan(exec, {4, 32, 8, 1 << 20, 1 << 20, 128});
  CHECK(plan.bytes() > (std::int64_t{4} * 48 << 20) * 128);
  CHECK(plan.bytes() < (std::int64_t{4} * 48 << 20) * 140);
  CHECK_THAT(plan.describe(), contains("codes of keys"));
  CHECK_THROWS_AS(sage_attention2::plan(exec, {1, 1, 1, std::int64_t{1} << 60, 1, 128}), shape_error);
}

TEST_CASE("attention says what does not fit together", "[host]") {
  cpu const exec{.threads = 1};
  auto const p = make_attention_problem<bfloat16>({2, 4, 2, 5, 6, 32});
  std::vector<bfloat16> memory(4 * 2 * 5 * 32);
  std::vector<float> numbers(100);
  auto const plan = sage_attention2::plan(exec, p.shape);
  buffer<std::byte> bytes(exec, plan.bytes());
  head_view<bfloat16> const result(memory.data(), {2, 4, 5, 32});
  auto const message = [&](attention_inputs<bfloat16> const& in, attention_options const& options,
                           attention_outputs<bfloat16> const& out) -> std::string {
    try {
      sage_attention2::forward(exec, in, options, out, workspace(plan, bytes));
    } catch (error const& e) {
      return e.what();
    }
    return "nothing thrown";
  };
  auto in = p.inputs();
  CHECK(message(in, {}, {result}) == "nothing thrown");
  CHECK(message(in, {.softmax_scale = -1.0F}, {result}) ==
        "attention.forward: the scale of the softmax is -1.000000 but must be finite and not negative");
  CHECK(message(in, {.softmax_scale = infinity}, {result}) ==
        "attention.forward: the scale of the softmax is inf but must be finite and not negative");
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
  in.queries = {p.queries.data(), {2, 4, 5, 24}};
  in.keys = in.values = {p.keys.data(), {2, 2, 6, 24}};
  CHECK(message(in, {}, {result}) ==
        "attention.forward: heads have 24 channels but must have a multiple of 16 up to 256");
}

TEST_CASE("operands that are missing or do not fit are refused", "[host]") {
  cpu const exec{.threads = 1};
  auto const p = make_attention_problem<bfloat16>({1, 2, 1, 5, 6, 32});
  using method = sage_attention2_int4;
  auto const made = make_operands<method>(exec, p);
  std::vector<bfloat16> memory(2 * 5 * 32);
  std::vector<float> lse(2 * 5);
  auto const message = [&](method::heads const& heads) -> std::string {
    try {
      method::forward(exec, attention_call<method::method, bfloat16>{
                                p.shape, {}, heads, {{memory.data(), {1, 2, 5, 32}}, {lse.data(), {1, 2, 5}}}});
    } catch (error const& e) {
      return e.what();
    }
    return "nothing thrown";
  };
  CHECK(message(made.heads) == "nothing thrown");
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
  heads.queries.mean_scores = {};
  CHECK(message(heads) == "attention.forward: log-sum-exps and sinks need the scores of the mean key, which are null");
  auto const quantizing = [&](attention_inputs<bfloat16> const& in, method::heads const& out) -> std::string {
    auto const plan = method::plan(exec, p.shape);
    buffer<std::byte> bytes(exec, plan.bytes());
    try {
      method::quantize(exec, p.shape, in, {}, out, workspace(plan, bytes));
    } catch (error const& e) {
      return e.what();
    }
    return "nothing thrown";
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
