// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The portable program of attention, on codes and scales that are made here, and on those of the aliases, against
// softmax(scores) * values in double over what these codes stand for.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/algorithm/attention/attention.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/attention/quantized_forward.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/testing/adversary.hpp>

#include "program/attention/coded_heads.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class Method, class Bias = no_bias>
using heads_of = coded_heads<attention_tiles, Method, Bias>;

/// half_method, with scores of mean queries.
using smoothed_method = attention_method<smoothed<symmetric_quantizer<8, per_warp>, block_mean>,
                                         scaled_float_quantizer<float16, per_tensor>, online_softmax<float>>;

/// A softmax with weights of its own, though it inherits how others give their numbers.
struct counting_softmax : online_softmax<float> {
  static inline std::atomic<std::int64_t> calls = 0;
  template <class Q>
  weighed_code<typename Q::code_type, float> weigh(state_type const& state, float scale, float sum,
                                                   bool is_first) const {
    ++calls;
    return online_softmax<float>::weigh<Q>(state, scale, sum, is_first);
  }
};
using counting_method =
    attention_method<symmetric_quantizer<8, per_warp>, scaled_float_quantizer<float16, per_tensor>, counting_softmax>;

/// Attention over codes of Attention, by the program of so many channels.
template <class Attention, int Channels, class T>
attention_results run_tiles(attention_problem<T> const& p, made_operands<Attention> const& made) {
  using method = typename Attention::method;
  attention_shape const& s = p.shape;
  std::vector<float> result(static_cast<std::size_t>(s.batch * s.query_heads * s.queries * s.channels), -777.0F);
  std::vector<float> log_sum_exp(static_cast<std::size_t>(s.batch * s.query_heads * s.queries), -777.0F);
  attention_call<method, float> call{s,
                                     p.options,
                                     made.heads,
                                     {{result.data(), {s.batch, s.query_heads, s.queries, s.channels}},
                                      {log_sum_exp.data(), {s.batch, s.query_heads, s.queries}}}};
  auto const program = tessera::detail::tiles_of<attention_tiles<method, float, no_bias, Channels>>(call);
  cpu const exec{.threads = 1};
  exec.run(program, program.groups());
  return {as_doubles(result), as_doubles(log_sum_exp)};
}

/// Checks it against the formula over what the codes stand for: weights of a few percent are rounded.
template <class Attention, int Channels>
void check_tiles(attention_shape const& s, bool is_causal) {
  auto p = make_attention_problem<bfloat16>(s);
  p.options.is_causal = is_causal;
  CAPTURE(s.queries, s.keys, s.channels, is_causal);
  auto const made = make_operands<Attention>(cpu{}, p);
  auto const expected = attention_by_codes(p, made);
  auto const found = run_tiles<Attention, Channels>(p, made);
  CHECK(error_of(found.result, expected.result).relative_l1 < 8e-3);
  CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 0.05);
}

}  // namespace

TEST_CASE("attention over codes is that over what they stand for, whatever the lengths", "[host][threads]") {
  heads_of<half_method> heads;
  check_coded_heads(heads, cpu{.threads = 2});
  heads_of<byte_method> bytes;
  bytes.run(cpu{.threads = 2});
  CHECK(bytes.error().of_results < 5e-2);  // weights are rounded to a 127th of the largest
  CHECK(bytes.error().of_sums < 1e-5);
}

TEST_CASE("queries see the keys of their window and of their list", "[host][threads]") {
  cpu const exec{.threads = 2};
  heads_of<half_method> window;
  window.left = 20;
  window.right = 3;
  check_coded_heads(window, exec);
  heads_of<half_method> listed;
  listed.counts = {1, 2, 0, 1, 1, 1, 2, 1};
  listed.tiles = {1, 7, 0, 1, 7, 7, 0, 7, 0, 7, 9, 7, 1, 0, -1, 7};  // 9 and -1 are no tiles
  check_coded_heads(listed, exec);
}

TEST_CASE("sinks, corrections and a reader's own bias are part of scores", "[host][threads]") {
  cpu const exec{.threads = 2};
  heads_of<smoothed_method, sloping_bias> heads;
  heads.sinks = {0.5F, -2.0F};
  for (std::int64_t i = 0; i < 2 * 2 * 2 * 256; ++i) {
    heads.corrections.push_back(0.1F * static_cast<float>(i % 13 - 6));
  }
  check_coded_heads(heads, exec);
}

TEST_CASE("where all values are equal the result is that value", "[host]") {
  heads_of<half_method> heads;
  std::fill(heads.values.begin(), heads.values.end(), store<float16>(100.0F));
  std::fill(heads.value_scales.begin(), heads.value_scales.end(), 0.25F);
  std::fill(heads.value_mean.begin(), heads.value_mean.end(), 0.0F);
  heads.run(cpu{.threads = 1});
  for (std::size_t i = 0; i < 70 * 40; i += 37) {
    CHECK(heads.results[i] == Approx(25.0F).epsilon(1e-6));
  }
}

TEST_CASE("splits of keys leave rows and sums that merge to the whole", "[host]") {
  cpu const exec{.threads = 1};
  heads_of<half_method> heads;
  auto whole = heads.program();
  using row_type = decltype(whole)::row_type;
  std::vector<float> totals(2 * 2 * 2 * 70 * 40, -777.0F);
  std::vector<row_type> rows(2 * 2 * 2 * 70);
  whole.partials = {{totals.data(), {2, 2, 2, 70, 40}}, {rows.data(), {2, 2, 2, 70}}};
  exec.run(whole, whole.groups());
  CHECK(heads.results[0] == -777.0F);  // they are merge_attention's
  merge_attention<half_method, float> const merge{whole.partials, whole.writer};
  exec.run(merge, merge.groups());
  CHECK(heads.error().of_results < 1e-3);
  CHECK(heads.error().of_sums < 1e-5);
}

TEST_CASE("the portable program of attention keeps the rules for programs", "[host]") {
  heads_of<half_method> heads;
  heads.right = 0;
  check_coded_heads(heads, testing::adversary{.seed = 81});
}

TEST_CASE("a softmax that inherits numbers and has weights of its own gets these", "[host]") {
  heads_of<half_method> inherited;
  heads_of<counting_method> own;
  counting_softmax::calls = 0;
  inherited.run(cpu{.threads = 1});
  CHECK(counting_softmax::calls == 0);
  own.run(cpu{.threads = 1});
  CHECK(counting_softmax::calls > 0);
  CHECK(own.results == inherited.results);
}

TEMPLATE_TEST_CASE("codes of attention have the results that they stand for", "[host]", sage_attention2,
                   sage_attention2_int4, finely) {
  for (bool const is_causal : {false, true}) {
    check_tiles<TestType, 64>({1, 2, 1, 65, 193, 64}, is_causal);
    check_tiles<TestType, 128>({1, 2, 1, 70, 129, 80}, is_causal);
    check_tiles<TestType, 256>({1, 1, 1, 64, 320, 256}, is_causal);
    check_tiles<TestType, 256>({1, 2, 1, 70, 129, 80}, is_causal);  // as sm_90a's code runs it
    check_tiles<TestType, 256>({1, 1, 1, 65, 130, 128}, is_causal);
  }
}

TEST_CASE("infinities and NaNs of codes spoil their rows and channels, and nothing else", "[host]") {
  for (float const odd : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    auto p = make_attention_problem<bfloat16>({1, 1, 1, 70, 200, 64});
    p.queries[3 * 64 + 7] = store<bfloat16>(odd);   // shares its scale with row 11
    p.values[100 * 64 + 5] = store<bfloat16>(odd);  // spoils channel 5 of all rows
    auto const made = make_operands<sage_attention2>(cpu{}, p);
    auto const found = run_tiles<sage_attention2, 64>(p, made);
    for (std::size_t i = 0; i < found.result.size(); ++i) {
      CAPTURE(odd, i / 64, i % 64);
      bool const is_spoilt = i / 64 == 3 || i / 64 == 11 || i % 64 == 5;
      REQUIRE(std::isnan(found.result[i]) == is_spoilt);
    }
    for (std::size_t row = 0; row < found.log_sum_exp.size(); ++row) {
      CAPTURE(odd, row);
      CHECK(std::isnan(found.log_sum_exp[row]) == (row == 3 || row == 11));
    }
  }
}
