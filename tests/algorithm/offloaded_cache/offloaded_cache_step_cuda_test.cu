// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Steps with chunks of 8 tokens and exact values; offloaded_cache_step_codecs_cuda_test.cu has the others.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.cuh>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/side_queue.cuh>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/offload_problem.hpp"
#include "support/offload_step_checks.cuh"
#include "support/offload_steps.cuh"
#include "support/vectors.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <int Rank>
using cache_of = offloaded_cache<low_rank<Rank>, landmark_selector<8>, keep_outliers<4>>;

/// The error of steps on the device against dense attention in double.
template <class Method, class T>
double dense_error(step_setup const& setup, std::int64_t steps) {
  step_problem<Method, T> p(setup);
  p.upload();
  offload_heads const& h = setup.heads;
  side_queue<tessera::cuda> const side(p.exec(), Method::side_marks);
  double error = 0;
  for (std::int64_t k = setup.steps_before; k < setup.steps_before + steps; ++k) {
    auto const found = p.decode_there(side, k);
    std::size_t first = 0;
    for (std::size_t i = 0; i < setup.prompts.size(); ++i) {
      auto const expected = dense_attention(h, p.sequence(i), setup.prompts[i] + k, p.embedding());
      std::vector<float> const own(found.begin() + static_cast<std::ptrdiff_t>(first),
                                   found.begin() + static_cast<std::ptrdiff_t>(first + expected.size()));
      error = std::max(error, relative_error(own, expected));
      first += expected.size();
    }
  }
  return error;
}

}  // namespace

TEST_CASE("programs of a step leave on the device what they leave on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  SECTION("64 channels") {
    check_step<cache_of<64>, bfloat16>({});
  }
  SECTION("the paper's heads") {
    check_step<cache_of<160>, bfloat16>({{32, 8, 128}, {700, 130}, 2, 20, 0, 128, rotary_pairs::halves, {}});
  }
  SECTION("as many chunks as there are") {
    check_step<cache_of<64>, bfloat16>({{8, 2, 64}, {300, 90}, 2, 64, 0, 64, rotary_pairs::halves, {}});
  }
  SECTION("more slots than chunks are selected") {
    check_step<cache_of<96>, bfloat16>({{3, 3, 64}, {420}, 9, 5, 17, 64, rotary_pairs::halves, {}});
  }
  SECTION("the largest rank, and neighbouring channels that all turn") {
    check_step<cache_of<192>, bfloat16>({{8, 4, 64}, {650, 90}, 3, 40, 50, 64, rotary_pairs::neighbours, {}});
  }
  SECTION("one table of the turns of all positions") {
    check_step<cache_of<64>, bfloat16>({{8, 2, 64}, {650, 90}, 3, 12, 0, 64, rotary_pairs::halves, {}, true});
  }
  SECTION("steps of some sequences") {
    check_step<cache_of<64>, bfloat16>({{8, 2, 64}, {650, 90, 200}, 3, 12, 0, 64, rotary_pairs::halves, {2, -1, 0}});
  }
  SECTION("a chunk leaves the ring") {
    check_step<cache_of<64>, bfloat16>({{8, 2, 64}, {650, 90, 3}, 5, 12, 0, 64, rotary_pairs::halves, {}});
  }
  SECTION("several blocks of chunks, more chunks than lanes") {
    check_step<cache_of<64>, bfloat16>({{2, 1, 64}, {4500, 1500}, 2, 100, 0, 64, rotary_pairs::halves, {}});
  }
}

TEST_CASE("steps on the device that attend to all chunks, with all directions, are dense attention", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(dense_error<cache_of<128>, bfloat16>({{8, 2, 64}, {300, 90}, 2, 64, 0, 64, rotary_pairs::halves, {}}, 20) <
        0.012);
  CHECK(dense_error<cache_of<128>, float16>({{16, 1, 128}, {260}, 3, 64, 0, 128, rotary_pairs::neighbours, {}}, 9) <
        0.002);
}
