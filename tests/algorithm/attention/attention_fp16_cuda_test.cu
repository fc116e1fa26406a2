// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include "algorithm/attention/attention_checks.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

using with_value_means = eight_with_value_means;

}  // namespace

TEST_CASE("codes of fp16 on a GPU are those of the host to the last bit, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {16, 64, 80, 128, 144, 256}) {
    for (std::int64_t const tokens : {1, 7, 16, 127, 128, 129, 1000}) {
      check_codes_against_host<with_value_means, float16>({1, 1, 1, 20, tokens, channels});
    }
    for (head_layout const layout : {head_layout::heads_first, head_layout::tokens_first, head_layout::shifted}) {
      check_codes_against_host<sage_attention2, float16>({2, 6, 2, 300, 500, channels}, layout);
    }
  }
}

TEST_CASE("attention of fp16 on a GPU agrees with the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_shape_against_host<sage_attention2, float16>({2, 4, 4, 257, 257, 128}, {.is_causal = true});
  check_shape_against_host<with_value_means, float16>({2, 4, 2, 257, 300, 64});
  for (std::int64_t const channels : {64, 128}) {
    for (head_layout const layout : {head_layout::heads_first, head_layout::tokens_first, head_layout::shifted}) {
      check_shape_against_host<sage_attention2, float16>({1, 3, 3, 70, 129, channels}, {}, layout);
    }
  }
}
