// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tests attention by tensor cores with the scores of mean queries, against the portable program on the CPU.
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/detail/staged_terms.cuh>

#include "support/attention_terms.cuh"
#include "support/score_functions.hpp"

using namespace tessera;
using namespace tessera_test;

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

TEST_CASE("large scales of smoothed queries are exact enough on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_attention_problem<bfloat16>({1, 2, 2, 130, 260, 128});
  for (auto& query : p.queries) {
    query = store<bfloat16>(20.0F * load(query));
  }
  check_against_cpu<smoothed_queries>(p, no_bias{}, no_bias{});
}
