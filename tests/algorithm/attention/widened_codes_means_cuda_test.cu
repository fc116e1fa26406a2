// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tests attention on a GPU over codes two to a byte whose queries keep their mean.
#include <tessera/algorithm/attention/widened_codes.hpp>
#include <tessera/map/no_bias.hpp>

#include "algorithm/attention/attention_of_pairs.cuh"
#include "support/attention_terms.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

/// sage_attention2_int4 with the mean of keys alone subtracted.
using four_without_block_means = attention<smoothed<two_to_a_byte<symmetric_quantizer<4, per_thread>>, sampled_mean>,
                                           sampled_range<float8_quantizer<float8_e4m3>>, piecewise_linear_softmax>;

}  // namespace

TEST_CASE("codes two to a byte attend on a GPU over queries whose mean is kept", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_attention_problem<bfloat16>({1, 2, 1, 300, 264, 128});
  p.options = causal;
  check_against_cpu<four_without_block_means>(p, no_bias{}, no_bias{});
  check_later<four_without_block_means>(p);
  check_later<four_without_block_means>(make_attention_problem<bfloat16>({1, 4, 2, 3, 1000, 128}));
}
