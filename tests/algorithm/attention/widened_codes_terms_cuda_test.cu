// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tests attention on a GPU over codes two to a byte whose scores have terms.
#include <tessera/algorithm/attention/widened_codes.hpp>

#include "support/attention_terms.cuh"
#include "support/score_functions.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("codes two to a byte take a bias on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_attention_problem<bfloat16>({1, 2, 1, 300, 264, 128});
  p.options = causal;
  check_against_cpu<sage_attention2_int4>(p, slope_bias{0.05F}, slope_bias{0.05F});
}
