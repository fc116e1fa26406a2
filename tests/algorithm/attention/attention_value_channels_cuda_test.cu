// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Values with other channels than queries and keys.
#include <cstdint>
#include <string>
#include <utility>

#include <tessera/exec/explain.hpp>

#include "algorithm/attention/attention_checks.cuh"
#include "algorithm/attention/attention_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

constexpr std::pair<std::int64_t, std::int64_t> widths[] = {{192, 128}, {192, 64},  {144, 16},  {128, 64}, {64, 128},
                                                            {32, 16},   {256, 128}, {192, 144}, {16, 256}};

constexpr attention_options causal{.is_causal = true};

}  // namespace

TEST_CASE("on a GPU values may have other channels than keys", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (auto const& [channels, of_values] : widths) {
    CAPTURE(of_values);
    check_shape_against_host({1, 2, 1, 130, 200, channels, of_values}, causal);
    check_shape_against_host({2, 4, 2, 257, 129, channels, of_values});
    check_shape_against_host({1, 2, 2, 191, 7, channels, of_values}, causal, head_layout::tokens_first);
    check_shape_against_host({1, 3, 1, 66, 300, channels, of_values}, {}, head_layout::shifted);
  }
  for (std::int64_t const tokens : {0, 1, 17, 127, 128, 129, 191, 192, 193, 1000}) {
    check_shape_against_host({1, 2, 1, tokens, tokens, 192, 128}, causal);
    check_shape_against_host({1, 2, 2, 150, tokens, 192, 128});
  }
}

TEST_CASE("a few queries on a GPU attend to values of other channels than keys", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (auto const& [channels, of_values] : widths) {
    CAPTURE(of_values);
    check_shape_against_host({1, 6, 2, 5, 2500, channels, of_values}, causal);
    auto p = make_attention_problem<bfloat16>({3, 4, 2, 2, 700, channels, of_values});
    p.key_lengths = {700, 0, 130};
    p.sinks = {3.0F, -1.0F, 0.0F, 9.0F};
    check_against_host(p);
  }
}

TEST_CASE("with wide keys, work items that several groups share give what the portable program does", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_shape_against_host({1, 1, 1, 1, 40000, 192, 128});
  check_shape_against_host({1, 2, 1, 300, 12000, 192, 128}, {.window_left = 9000});
  auto p = make_attention_problem<bfloat16>({3, 4, 2, 500, 3000, 192, 128});
  p.query_lengths = {500, 3, 0};
  p.key_lengths = {3000, 2999, 1};
  p.options.is_causal = true;
  check_against_host(p);
}

TEST_CASE("wide keys with means of values, too, are attended as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (auto const& [channels, of_values] : widths) {
    CAPTURE(of_values);
    check_shape_against_host<eight_with_value_means>({1, 4, 2, 200, 333, channels, of_values}, causal);
  }
}

TEST_CASE("attention with wide keys is near the formula in double, and repeats bit for bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto p = make_attention_problem<bfloat16>({2, 12, 4, 1500, 1500, 192, 128}, testing::offset_channels{192, 0.06, 2.0},
                                            testing::offset_channels{192, 0.06, 4.0},
                                            testing::offset_channels{128, 1.0, 0.5});
  p.options.is_causal = true;
  auto const first = run_on_device<sage_attention2, bfloat16>(exec, p).found;
  auto const expected = attention_by_formula(p);
  auto const error = error_of(first.result, expected.result);
  CAPTURE(error.relative_l1, error.cosine);
  CHECK(error.relative_l1 < 2e-2);
  CHECK(error.cosine > 0.9995);
  CHECK(farthest(first.log_sum_exp, expected.log_sum_exp) < 0.0607);
  for (int i = 0; i < 3; ++i) {
    auto const again = run_on_device<sage_attention2, bfloat16>(exec, p).found;
    CHECK(again.result == first.result);
    CHECK(again.log_sum_exp == first.log_sum_exp);
  }
}

TEST_CASE("on sm_90 attention with wide keys is by the program for tensor cores, whatever the number of queries",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda exec;
  exec.options.refuses_slower_programs = is_hopper();
  for (std::int64_t const queries : {1, 16, 17, 300}) {
    auto const p = make_attention_problem<bfloat16>({1, 2, 2, queries, 1300, 192, 128});
    CHECK_NOTHROW(run_on_device<sage_attention2, bfloat16>(exec, p));
  }
}
