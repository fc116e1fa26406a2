// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Terms of scores in the program of GPUs without wgmma, against attention_tiles on the host. Where sums of products
// begin at terms, scores are rounded by half a unit of products, and codes of weights may be the next ones.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include <tessera/map/linear_bias.hpp>
#include <tessera/program/attention/detail/warp_terms.cuh>
#include <tessera/quantize/in_high_bits.hpp>

#include "program/attention/by_warps.cuh"
#include "support/guarded_memory.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

using values_in_e4m3 = sampled_range<float8_quantizer<float8_e4m3>>;
template <class Codes>
using with_smoothed_queries =
    attention<smoothed<smoothed<Codes, sampled_mean>, block_mean>, values_in_e4m3, piecewise_linear_softmax>;
using eight_smoothed = with_smoothed_queries<symmetric_quantizer<8, per_thread>>;
using four_in_bytes = with_smoothed_queries<in_high_bits<symmetric_quantizer<4, per_thread>>>;
using in_pairs = sage_attention2_int4;

/// Whether the thread blocks that run at a time fit the 100 KiB of a multiprocessor of sm_120, with 1 KiB for each.
template <int Channels>
constexpr bool fits_blackwell() {
  using program = forward_by_warps<bytes_of<eight_smoothed, Channels, 1200>, bfloat16>;
  return program::blocks_per_multiprocessor * (detail::launch_shape<program>::shared_bytes + 1024) <= 100 * 1024;
}
static_assert(fits_blackwell<64>() && fits_blackwell<128>());

constexpr most_distance of_bytes{6e-3, 1e-3};  ///< where scores are coded in 8 bits
constexpr most_distance of_pairs{2e-2, 5e-3};  ///< in 4 bits, whose unit is 256 times as large

/// Adds to each query a vector that is the same for all queries of a head, of this size.
template <class T>
void move_queries(attention_problem<T>& p, float size) {
  std::int64_t const channels = p.shape.channels;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(p.queries.size()); ++i) {
    float const by = size * std::sin(static_cast<float>(i % channels * 7 + 1));
    p.queries[as_size(i)] = store<T>(load(p.queries[as_size(i)]) + by);
  }
}

template <int Channels>
void check_methods(attention_problem<bfloat16> const& p, warps_run<> const& how = {}) {
  check_by_warps<eight_smoothed, Channels>(p, how, of_bytes);
  check_by_warps<in_pairs, Channels>(p, how, of_pairs);
  check_by_warps<four_in_bytes, Channels>(p, how, of_bytes);
}

/// A function of scores: minus infinity for one key, and `rare` for another and some queries.
struct function_with_rare_values {
  float slope;
  float rare;
  TESSERA_FN float operator()(std::int64_t, std::int64_t head, std::int64_t query, std::int64_t key) const {
    float const usual = slope * static_cast<float>(head + 1) * static_cast<float>(key % 37 - query % 11);
    return key == 3 ? -infinity : key == 200 && query % 50 == 7 ? rare : usual;
  }
};

/// Compares with a bias that is read on the host and on the device.
template <class Attention, int Channels, class Bias>
void check_bias(attention_problem<bfloat16> const& p, Bias const& bias, most_distance const& most) {
  check_by_warps<Attention, Channels>(p, warps_run<Bias>{1, {}, bias}, most, bias);
}

/// Compares with a bias by slopes of two heads.
template <class Attention, int Channels>
void check_slopes(attention_problem<bfloat16> const& p, std::vector<float> const& slopes, most_distance const& most) {
  cuda const exec;
  auto const on_device = to_device(exec, slopes);
  auto const count = static_cast<std::int64_t>(slopes.size());
  warps_run<linear_bias> const how{1, exec, {{on_device.data(), count}}};
  CAPTURE(slopes);
  check_by_warps<Attention, Channels>(p, how, most, linear_bias{{slopes.data(), count}});
}

}  // namespace

TEST_CASE("attention by warps adds scores of mean queries, whatever the lengths", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const tokens : {1, 65, 128, 129, 257, 700}) {
    auto p = make_attention_problem<bfloat16>({1, 4, 2, tokens, tokens, 64});
    move_queries(p, 0.5F);
    check_methods<64>(p);
    auto wide = make_attention_problem<bfloat16>({2, 2, 1, tokens, 500, 128});
    move_queries(wide, 0.5F);
    wide.options.is_causal = tokens <= 500;
    check_methods<128>(wide);
  }
}

TEST_CASE("attention by warps adds scores of mean queries with windows, lengths, splits and other channels", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_attention_problem<bfloat16>({2, 2, 1, 300, 900, 64});
  move_queries(p, 0.5F);
  p.options.window_left = 130;
  p.options.window_right = 5;
  check_methods<64>(p);
  p.options = {};
  p.query_lengths = {300, 77};
  p.key_lengths = {900, 131};
  check_methods<64>(p);
  p.key_lengths = {0, 900};
  check_methods<64>(p);
  auto wide = make_attention_problem<bfloat16>({1, 2, 1, 400, 1100, 128});
  move_queries(wide, 0.5F);
  for (std::int64_t const splits : {2, 5, 12}) {
    check_methods<128>(wide, {splits});
  }
  check_methods<128>(make_attention_problem<bfloat16>({1, 2, 1, 200, 400, 96, 48}));
}

TEST_CASE("attention by warps adds scores of mean queries that are far apart", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (float const size : {5.0F, 50.0F, 3000.0F}) {  // corrections of some 10^2 to 10^5
    CAPTURE(size);
    auto p = make_attention_problem<bfloat16>({1, 2, 1, 200, 400, 64});
    move_queries(p, size);
    check_by_warps<eight_smoothed, 64>(p, {}, of_pairs);
    check_by_warps<in_pairs, 64>(p, {}, of_pairs);
  }
  auto same = make_attention_problem<bfloat16>({1, 2, 1, 200, 400, 128});  // all that a query differs by is nothing
  std::fill(same.queries.begin(), same.queries.end(), store<bfloat16>(0.25F));
  check_methods<128>(same);
}

TEST_CASE("attention by warps is as near to attention in double with terms as the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_attention_problem<bfloat16>({1, 4, 2, 512, 1024, 128});
  move_queries(p, 0.5F);
  auto const exact = attention_by_formula(p);
  double const of_host = error_of(run_attention_problem<in_pairs, bfloat16>(cpu{}, p).result, exact.result).relative_l1;
  run_all<in_pairs, 128>(p, [&](attention_results const& found, char const* program) {
    CAPTURE(program, of_host);
    CHECK(error_of(found.result, exact.result).relative_l1 < 1.01 * of_host);
  });
}

TEST_CASE("NaN and infinity reach the rows that see them through scores of mean queries", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (float const value : {std::numeric_limits<float>::quiet_NaN(), infinity}) {
    for (bool const is_query : {false, true}) {
      CAPTURE(value, is_query);
      auto p = make_attention_problem<bfloat16>({1, 2, 1, 300, 300, 128});
      p.options.is_causal = true;
      (is_query ? p.queries : p.keys)[as_size(200 * 128 + 3)] = store<bfloat16>(value);
      auto const expected = run_attention_problem<in_pairs, bfloat16>(cpu{}, p);
      CHECK(std::any_of(expected.result.begin(), expected.result.end(), [](double x) { return std::isnan(x); }));
      run_all<in_pairs, 128>(p, [&](attention_results const& found, char const* program) {
        CAPTURE(program);
        CHECK(agree(found.result, expected.result, 0.05));
        CHECK(agree(found.log_sum_exp, expected.log_sum_exp, 1e-3));
      });
    }
  }
}

TEST_CASE("attention by warps adds linear biases", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (auto const& slopes : {std::vector<float>{0.25F, 0.004F}, {-0.05F, 0.0F}, {300.0F, -2000.0F}}) {
    auto p = make_attention_problem<bfloat16>({1, 2, 1, 300, 600, 64});
    check_slopes<sage_attention2, 64>(p, slopes, of_bytes);
    p.options.is_causal = true;
    check_slopes<eight_smoothed, 64>(p, slopes, of_bytes);
    auto wide = make_attention_problem<bfloat16>({2, 2, 2, 500, 700, 128});
    wide.options.window_left = 300;
    check_slopes<sage_attention2, 128>(wide, slopes, of_bytes);
    check_slopes<in_pairs, 128>(wide, slopes, of_pairs);
  }
}

TEST_CASE("attention by warps adds biases of functions", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_attention_problem<bfloat16>({1, 2, 1, 300, 600, 64});
  for (float const slope : {0.05F, 300.0F, 1e5F}) {
    CAPTURE(slope);
    check_bias<sage_attention2, 64>(p, function_with_rare_values{slope, 0.0F}, of_bytes);
  }
  p.options.is_causal = true;
  check_bias<eight_smoothed, 64>(p, function_with_rare_values{0.05F, -infinity}, of_bytes);
  auto wide = make_attention_problem<bfloat16>({2, 2, 2, 500, 700, 128});
  wide.options.window_left = 300;
  check_bias<sage_attention2, 128>(wide, function_with_rare_values{0.05F, -infinity}, of_bytes);
  check_bias<in_pairs, 128>(wide, function_with_rare_values{0.05F, 3.0F}, of_bytes);
}

TEST_CASE("NaN and infinity of a bias reach the rows that see them by warps", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (float const rare : {std::numeric_limits<float>::quiet_NaN(), infinity}) {
    CAPTURE(rare);
    auto p = make_attention_problem<bfloat16>({1, 2, 1, 300, 600, 64});
    function_with_rare_values const bias{0.05F, rare};
    auto const expected = run_attention_problem<sage_attention2, bfloat16>(cpu{}, p, bias);
    CHECK(std::any_of(expected.result.begin(), expected.result.end(), [](double x) { return std::isnan(x); }));
    auto const check = [&](attention_results const& found, char const* program) {
      CAPTURE(program);
      CHECK(agree(found.result, expected.result, 0.05));
      CHECK(agree(found.log_sum_exp, expected.log_sum_exp, 1e-3));
    };
    run_all<sage_attention2, 64>(p, check, warps_run<function_with_rare_values>{1, {}, bias});
  }
}

TEST_CASE("attention by warps with terms reads and writes nothing beside its memory", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (auto const edge : {guarded_edge::before, guarded_edge::behind}) {
    cuda exec;
    exec.memory = std::make_shared<guarded_resource>(edge);
    check_methods<64>(make_attention_problem<bfloat16>({1, 2, 1, 65, 129, 64}), {1, exec});
    check_methods<128>(make_attention_problem<bfloat16>({1, 2, 1, 200, 300, 96, 96}), {2, exec});
  }
}
