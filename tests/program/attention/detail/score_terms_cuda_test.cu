// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tests attention by tensor cores with biases that are functions, against the portable program on the CPU.
#include <cstdint>
#include <limits>

#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/detail/score_terms.cuh>

#include "support/attention_terms.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

using exponentials = eight_with_value_means;

/// A bias from memory of exactly queries x keys, or a slope where that is null: one type, since programs of each take
/// long to compile.
struct test_bias {
  matrix_view<float const> biases;
  float slope = 0.0F;
  TESSERA_FN float operator()(std::int64_t, std::int64_t, std::int64_t query, std::int64_t key) const {
    return biases.data != nullptr ? biases(query, key) : slope * static_cast<float>(key - query);
  }
};

template <class Method>
void check_biases(attention_shape const& shape, attention_options const& options, float odd = 0.0F) {
  auto p = make_attention_problem<bfloat16>(shape);
  p.options = options;
  tessera::cuda const exec;
  auto const biases = make_biases(shape.queries, shape.keys, odd);
  auto const on_device = to_device(exec, biases);
  check_against_cpu<Method>(p, test_bias{{on_device.data(), {shape.queries, shape.keys}}},
                            test_bias{{biases.data(), {shape.queries, shape.keys}}});
  check_against_cpu<Method>(p, test_bias{{}, 0.05F}, test_bias{{}, 0.05F});
}

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
  check_against_cpu<sage_attention2>(p, test_bias{{on_device.data(), {200, 500}}},
                                     test_bias{{biases.data(), {200, 500}}});
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

TEST_CASE("large scales of scores with terms are exact enough on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_attention_problem<bfloat16>({1, 2, 2, 130, 260, 128});
  for (auto& query : p.queries) {
    query = store<bfloat16>(20.0F * load(query));
  }
  check_against_cpu<sage_attention2>(p, test_bias{{}, 0.05F}, test_bias{{}, 0.05F});
}

TEST_CASE("the keys of few queries with a bias are split on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_biases<sage_attention2>({1, 1, 1, 100, 5000, 128}, {});
  check_biases<sage_attention2>({1, 2, 1, 3, 3000, 64}, causal);
}
