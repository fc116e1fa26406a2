// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/map/dense_bias.hpp>

#include "support/attention_terms.cuh"

using namespace tessera;
using namespace tessera_test;

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

TEST_CASE("dense biases far below those of other keys, and beside small scales, are added on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (float const low : {-4.0F, -150.0F, -600.0F, -1100.0F}) {
    for (float const factor : {1.0F, 0.03F}) {
      CAPTURE(low, factor);
      auto p = make_attention_problem<bfloat16>({1, 2, 1, 200, 520, low == -150.0F ? 64 : 128});
      for (auto& query : p.queries) {
        query = store<bfloat16>(factor * load(query));
      }
      std::vector<bfloat16> biases(200 * 520);
      for (std::size_t i = 0; i < biases.size(); ++i) {
        biases[i] = store<bfloat16>(i % 11 == 5 ? low : testing::gauss{}.value(7, i));
      }
      auto const on_device = to_device(exec, biases);
      auto const view_of = [&](bfloat16 const* data) {
        return dense_bias<bfloat16>{{data, {1, 2, 200, 520}, {0, 0, 520, 1}}};
      };
      check_against_cpu<sage_attention2>(p, view_of(on_device.data()), view_of(biases.data()));
    }
  }
}
