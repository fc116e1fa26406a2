// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tests attention over 8-bit floats whose scores are all negative, zero or large.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tessera/algorithm/attention/float8_attention.hpp>

#include "algorithm/attention/attention_of_float8.cuh"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("scores of 8-bit floats may all be negative, zero or large", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    auto p = make_attention_problem<bfloat16>({1, 2, 1, 300, 700, channels});
    p.options.softmax_scale = 30.0F;
    check_float8(p, head_layout::heads_first, {.relative_l1 = 0.02, .of_score = 1.0 / 64});
    auto ones = p;
    for (auto* of : {&ones.queries, &ones.keys}) {
      for (auto& value : *of) {
        value = store<bfloat16>(load(value) < 0 ? -1.0F : 1.0F);
      }
    }
    for (float const softmax_scale : {1.0F, 1e4F, 1e20F}) {  // sums of ones are exact, and few keys have all the weight
      ones.options.softmax_scale = softmax_scale;
      check_against_portable<float8_exponentials>(ones);
      check_against_portable<float8_without_means>(ones);
    }
    p.options.softmax_scale = 0.0F;
    for (auto& query : p.queries) {
      query = store<bfloat16>(-std::fabs(load(query)));
    }
    for (auto& key : p.keys) {
      key = store<bfloat16>(std::fabs(load(key)));
    }
    check_against_portable<float8_exponentials>(p, {.of_score = 1.0 / 64});
    check_float8<float8_exponentials>(p, head_layout::heads_first, {.of_score = 1.0 / 64});
    std::fill(p.queries.begin(), p.queries.end(), store<bfloat16>(0.0F));
    check_against_portable(p);
    std::fill(p.keys.begin(), p.keys.end(), store<bfloat16>(-0.0F));
    check_against_portable<float8_exponentials>(p);
  }
}
