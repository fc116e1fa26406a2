// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/attention_check.hpp"
#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"
#include "support/quantized_reference.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

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

TEST_CASE("values may have other channels than keys", "[host]") {
  check_shape<finely>({1, 2, 1, 20, 140, 192, 128}, {.is_causal = true});
  check_shape<finely>({1, 1, 1, 65, 129, 16, 256});
  check_shape<finely>({2, 2, 2, 7, 130, 80, 48});
  check_shape<finely>({1, 4, 2, 1, 1100, 32, 64});  // in splits of the keys
  check_shape<finely_int4>({1, 2, 1, 70, 140, 48, 80}, {.is_causal = true});
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
  check_against_codes<sage_attention2>(p, 0.1, 0.02);
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

TEST_CASE("the attention program keeps the rules for programs, and every executor gives the same bits",
          "[host][threads]") {
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
