// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Steps with chunks of 16 tokens, other ways to join queries' scores, and coded values.
#include <cstdint>

#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.cuh>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/offload_step_checks.cuh"
#include "support/offload_steps.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

template <int Rank, int Chunk = 8, class Codec = exact_values, class Group = group_max>
using cache_of = offloaded_cache<low_rank<Rank>, landmark_selector<Chunk, Group>, keep_outliers<4>, Codec>;

}  // namespace

TEST_CASE("programs of a step leave on the device what they leave on the host, for chunks and groups of other sizes",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  SECTION("many query heads, in 16-bit floats, neighbouring channels that turn in part") {
    check_step<cache_of<64>, float16>({{24, 2, 64}, {420, 77}, 3, 12, 0, 32, rotary_pairs::neighbours, {}});
  }
  SECTION("many query heads of bfloat16, without rotations, chunks of 16") {
    check_step<cache_of<32, 16>, bfloat16>({{32, 2, 128}, {660}, 3, 9, 0, 0, rotary_pairs::halves, {}});
  }
  SECTION("a chunk of 16 leaves the ring") {
    check_step<cache_of<72, 16>, float16>({{4, 2, 64}, {640}, 15, 6, 0, 64, rotary_pairs::halves, {}});
  }
  SECTION("the mean of shares") {
    check_step<cache_of<64, 8, exact_values, group_mean>, bfloat16>({});
  }
}

TEST_CASE("coded values of a step are fetched as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_step<cache_of<64, 8, float8_quantizer<float8_e4m3>>, bfloat16>(
      {{8, 2, 64}, {650, 90, 3}, 5, 12, 0, 64, rotary_pairs::halves, {}});
  check_step<cache_of<160, 8, float8_quantizer<float8_e4m3>>, bfloat16>(
      {{16, 4, 128}, {500, 130}, 2, 20, 0, 128, rotary_pairs::halves, {}});
  check_step<cache_of<64, 8, symmetric_quantizer<4, 64>>, float16>({});
}
