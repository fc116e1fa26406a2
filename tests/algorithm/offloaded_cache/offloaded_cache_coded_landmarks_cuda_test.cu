// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.cuh>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/select/coded_landmark.hpp>
#include <tessera/select/keep_outliers.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/offload_step_checks.cuh"
#include "support/offload_steps.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

template <int Rank, int Chunk = 8, class Codec = exact_values, class Group = group_max>
using coded_cache_of = offloaded_cache<low_rank<Rank>, coded_landmark_selector<Chunk, Group>, keep_outliers<4>, Codec>;

}  // namespace

TEST_CASE("programs of a step leave on the device what they leave on the host, with landmarks in codes", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  SECTION("64 channels") {
    check_step<coded_cache_of<64>, bfloat16>({});
  }
  SECTION("the paper's heads") {
    check_step<coded_cache_of<160>, bfloat16>({{32, 8, 128}, {700, 130}, 2, 20, 0, 128, rotary_pairs::halves, {}});
  }
  SECTION("in 16-bit floats") {
    check_step<coded_cache_of<64>, float16>({{24, 2, 64}, {420, 77}, 3, 12, 0, 32, rotary_pairs::neighbours, {}});
  }
  SECTION("many query heads without rotations, chunks of 16") {
    check_step<coded_cache_of<32, 16>, bfloat16>({{32, 2, 128}, {660}, 3, 9, 0, 0, rotary_pairs::halves, {}});
  }
  SECTION("steps of some sequences") {
    check_step<coded_cache_of<64>, bfloat16>(
        {{8, 2, 64}, {650, 90, 200}, 3, 12, 0, 64, rotary_pairs::halves, {2, -1, 0}});
  }
  SECTION("a chunk leaves the ring") {
    check_step<coded_cache_of<64>, bfloat16>({{8, 2, 64}, {650, 90, 3}, 5, 12, 0, 64, rotary_pairs::halves, {}});
  }
  SECTION("several blocks of chunks, one key head") {
    check_step<coded_cache_of<64>, bfloat16>({{2, 1, 64}, {4500, 1500}, 2, 100, 0, 64, rotary_pairs::halves, {}});
  }
  SECTION("the mean of shares, values in codes") {
    check_step<coded_cache_of<64, 8, float8_quantizer<float8_e4m3>, group_mean>, bfloat16>({});
  }
}
