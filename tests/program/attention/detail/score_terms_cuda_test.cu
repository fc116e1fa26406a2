// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tests attention by tensor cores with terms added to scores, biases and the scores of mean queries, against the
/// portable program on the CPU.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/map/dense_bias.hpp>
#include <tessera/map/linear_bias.hpp>
#include <tessera/program/attention/detail/score_terms.cuh>

#include "algorithm/attention/attention_on_device.cuh"
#include "support/score_functions.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using smoothed_queries = attention<smoothed<smoothed<symmetric_quantizer<8, per_thread>, sampled_mean>, block_mean>,
                                   sampled_range<float8_quantizer<float8_e4m3>>, piecewise_linear_softmax>;
using exponentials = attention<smoothed<symmetric_quantizer<8, per_thread>>, float8_quantizer<float8_e4m3>>;

/// A bias from memory of exactly queries x keys.
struct bias_matrix {
  matrix_view<float const> biases;
  TESSERA_FN float operator()(std::int64_t, std::int64_t, std::int64_t query, std::int64_t key) const {
    return biases(query, key);
  }
};

/// Normal biases, every fifth minus infinity, a whole row of them, and an element of choice.
std::vector<float> make_biases(std::int64_t queries, std::int64_t keys, float odd) {
  std::vector<float> biases(as_size(queries * keys));
  for (std::int64_t i = 0; i < queries * keys; ++i) {
    bool const is_hidden = i % 5 == 2 || i / keys == 3;
    biases[as_size(i)] = is_hidden ? -infinity : testing::gauss{}.value(5, static_cast<std::uint64_t>(i));
  }
  biases[as_size((queries - 1) * keys)] = odd;
  return biases;
}

/// How far log-sum-exps may be from the portable program's, which rounds scores elsewhere: a weight's code may be the
/// next one, and a row may have one weight that matters.
constexpr double most_apart = 0.0607;  // log(17 / 16)

template <class Method, class Bias>
void check_against_cpu(attention_problem<bfloat16> const& p, Bias const& there, Bias const& here) {
  attention_shape const& s = p.shape;
  CAPTURE(s.batch, s.query_heads, s.queries, s.keys, s.channels, p.options.is_causal, p.options.window_left);
  tessera::cuda const exec;
  auto const found =
      run_on_device<Method, bfloat16>(exec, p, head_layout::tokens_first, true, attention_functions<Bias>{there});
  auto const expected = run_attention_problem<Method, bfloat16>(cpu{}, p, here);
  CHECK(found.is_clean);
  std::vector<double> of_found;
  std::vector<double> of_expected;
  std::int64_t odd = 0;
  for (std::size_t i = 0; i < expected.result.size(); ++i) {
    if (std::isnan(expected.result[i]) || std::isnan(found.found.result[i])) {
      odd += std::isnan(expected.result[i]) != std::isnan(found.found.result[i]) ? 1 : 0;
    } else {
      of_found.push_back(found.found.result[i]);
      of_expected.push_back(expected.result[i]);
    }
  }
  CHECK(odd == 0);
  CHECK(error_of(of_found, of_expected).relative_l1 < 5e-3);
  CHECK(farthest(found.found.log_sum_exp, expected.log_sum_exp) < most_apart);
}

template <class Method>
void check_biases(attention_shape const& shape, attention_options const& options, float odd = 0.0F) {
  auto p = make_attention_problem<bfloat16>(shape);
  p.options = options;
  tessera::cuda const exec;
  auto const biases = make_biases(shape.queries, shape.keys, odd);
  auto const on_device = to_device(exec, biases);
  check_against_cpu<Method>(p, bias_matrix{{on_device.data(), {shape.queries, shape.keys}}},
                            bias_matrix{{biases.data(), {shape.queries, shape.keys}}});
  check_against_cpu<Method>(p, slope_bias{0.05F}, slope_bias{0.05F});
}

constexpr attention_options causal{.is_causal = true};

}  // namespace

TEST_CASE("biases from memory and from functions are added by tensor cores' attention", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_biases<sage_attention2>({1, 2, 1, 200, 264, 64}, causal);
  check_biases<sage_attention2>({1, 1, 1, 129, 127, 128}, {});
  check_biases<sage_attention2>({2, 2, 2, 70, 385, 128}, {.window_left = 40, .window_right = 3});
  check_biases<sage_attention2>({1, 2, 2, 65, 129, 256}, causal);
  check_biases<sage_attention2>({1, 1, 1, 17, 1, 80}, {});
  check_biases<exponentials>({1, 2, 1, 200, 232, 128}, causal);
  check_biases<exponentials>({1, 1, 1, 300, 290, 64}, {.window_left = 10, .window_right = 0});
}

TEST_CASE("a linear bias is added by tensor cores' attention, steep ones and those of one side of the mask", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (float const steepest : {0.05F, 3.0F, 300.0F}) {
    std::vector<float> const slopes{steepest, -steepest / 3, 0.0F};
    auto const on_device = to_device(exec, slopes);
    for (attention_shape const& shape :
         {attention_shape{1, 3, 1, 200, 264, 64}, attention_shape{2, 3, 3, 129, 400, 128},
          attention_shape{1, 3, 1, 65, 300, 256}}) {
      for (attention_options const& options : {attention_options{}, causal}) {
        CAPTURE(steepest);
        auto p = make_attention_problem<bfloat16>(shape);
        p.options = options;
        check_against_cpu<sage_attention2>(p, linear_bias{on_device.view()}, linear_bias{slopes});
        check_against_cpu<smoothed_queries>(p, linear_bias{on_device.view()}, linear_bias{slopes});
      }
    }
  }
}

namespace {

/// Biases of T with rows `row` elements apart, for all heads or for each.
template <class T>
void check_dense(attention_shape const& shape, attention_options const& options, bool for_all, std::int64_t row,
                 float odd = 0.0F) {
  CAPTURE(for_all, row, odd);
  auto p = make_attention_problem<bfloat16>(shape);
  p.options = options;
  std::int64_t const heads = for_all ? 1 : shape.batch * shape.query_heads;
  std::int64_t const head = for_all ? 0 : (shape.queries + 1) * row;
  std::vector<T> biases(as_size(heads * (shape.queries + 1) * row));
  auto const values = make_biases(shape.queries, shape.keys, odd);
  for (std::int64_t i = 0; i < heads; ++i) {
    for (std::int64_t j = 0; j < shape.queries * shape.keys; ++j) {
      float const value = values[as_size(j)] * static_cast<float>(i + 1);
      biases[as_size(i * head + j / shape.keys * row + j % shape.keys)] = store<T>(value);
    }
  }
  tessera::cuda const exec;
  auto const on_device = to_device(exec, biases);
  auto const view_of = [&](T const* data) {
    return dense_bias<T>{
        {data, {shape.batch, shape.query_heads, shape.queries, shape.keys}, {shape.query_heads * head, head, row, 1}}};
  };
  check_against_cpu<sage_attention2>(p, view_of(on_device.data()), view_of(biases.data()));
}

}  // namespace

TEST_CASE("dense biases are loaded in tiles on a GPU, of all heads or each, and one by one where rows are odd",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (bool const for_all : {true, false}) {
    check_dense<bfloat16>({2, 2, 1, 200, 264, 64}, causal, for_all, 264);
    check_dense<bfloat16>({1, 2, 2, 129, 400, 128}, {}, for_all, 408);
    check_dense<bfloat16>({1, 1, 1, 65, 130, 256}, causal, for_all, 136);
    check_dense<float16>({1, 2, 1, 130, 127, 128}, {.window_left = 30}, for_all, 128);
  }
  check_dense<bfloat16>({1, 1, 1, 70, 131, 128}, {}, true, 131);
  check_dense<float>({1, 1, 1, 70, 131, 128}, {}, true, 132);
  for (float const odd : {infinity, std::numeric_limits<float>::quiet_NaN(), -1e30F}) {
    check_dense<bfloat16>({1, 1, 1, 130, 300, 128}, {}, true, 304, odd);
  }
}

TEST_CASE("infinite and NaN biases spoil their rows alone on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (float const odd : {infinity, std::numeric_limits<float>::quiet_NaN(), -1e30F, 1e30F}) {
    CAPTURE(odd);
    check_biases<sage_attention2>({1, 1, 1, 130, 300, 128}, {}, odd);
  }
}

TEST_CASE("biases of sequences of several lengths are only asked for what exists", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_attention_problem<bfloat16>({3, 2, 1, 200, 500, 128});
  p.query_lengths = {200, 77, 0};
  p.key_lengths = {500, 130, 500};
  tessera::cuda const exec;
  auto const biases = make_biases(200, 500, 0.0F);
  auto const on_device = to_device(exec, biases);
  check_against_cpu<sage_attention2>(p, bias_matrix{{on_device.data(), {200, 500}}},
                                     bias_matrix{{biases.data(), {200, 500}}});
}

TEST_CASE("scores of mean queries are added by tensor cores' attention, with and without a bias", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (attention_shape const& shape : {attention_shape{1, 2, 1, 200, 264, 64}, attention_shape{2, 1, 1, 129, 127, 128},
                                       attention_shape{1, 2, 2, 65, 300, 256}}) {
    for (attention_options const& options : {attention_options{}, causal}) {
      auto p = make_attention_problem<bfloat16>(shape);
      p.options = options;
      check_against_cpu<smoothed_queries>(p, no_bias{}, no_bias{});
      check_against_cpu<smoothed_queries>(p, slope_bias{0.05F}, slope_bias{0.05F});
    }
  }
}

TEST_CASE("large scales of scores with terms are exact enough on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_attention_problem<bfloat16>({1, 2, 2, 130, 260, 128});
  for (auto& query : p.queries) {
    query = store<bfloat16>(20.0F * load(query));
  }
  check_against_cpu<sage_attention2>(p, slope_bias{0.05F}, slope_bias{0.05F});
  check_against_cpu<smoothed_queries>(p, no_bias{}, no_bias{});
}

TEST_CASE("a tile of which a row sees nothing leaves the row as it is on a GPU, with exponentials, too", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (attention_shape const& shape :
       {attention_shape{1, 2, 1, 200, 232, 128}, attention_shape{1, 1, 1, 130, 161, 64}}) {
    auto p = make_attention_problem<bfloat16>(shape);
    p.options = causal;
    check_against_cpu<exponentials>(p, no_bias{}, no_bias{});
    check_against_cpu<sage_attention2>(p, no_bias{}, no_bias{});
  }
}

TEST_CASE("the keys of few queries with a bias are split on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_biases<sage_attention2>({1, 1, 1, 100, 5000, 128}, {});
  check_biases<sage_attention2>({1, 2, 1, 3, 3000, 64}, causal);
}
