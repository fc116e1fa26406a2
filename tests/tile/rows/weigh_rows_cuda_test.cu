// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <string>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/row_tile.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_rows.cuh>
#include <tessera/tile/rows/lane_rows.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "tile/row_words.hpp"
#include "tile/rows/part_rows.hpp"
#include "tile/rows/weighed_rows.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

struct warpgroup_words {
  template <class G>
  using of = warpgroup_rows<float, 32, 64, G>;
};

/// What is wrong with the weights of a model, whose groups have so many lanes.
template <class Words, int Rows, int Columns, int Lanes>
std::string wrong_weights(int tiles, float headroom) {
  cuda const exec;
  weighed_rows_problem problem(Rows, Columns, tiles, headroom);
  auto const scores = to_device(exec, problem.scores);
  auto by_rows = to_device(exec, problem.by_rows);
  auto with_headroom = to_device(exec, problem.with_headroom);
  auto by_lanes = to_device(exec, problem.by_lanes);
  auto agreements = to_device(exec, problem.agreements);
  exec.run(weighed_rows<Words, Lanes>{{scores.data(), {Rows, Columns * tiles}},
                                      headroom,
                                      by_rows.view(),
                                      with_headroom.view(),
                                      by_lanes.view(),
                                      agreements.view()},
           1);
  problem.by_rows = to_host(exec, by_rows);
  problem.with_headroom = to_host(exec, with_headroom);
  problem.by_lanes = to_host(exec, by_lanes);
  problem.agreements = to_host(exec, agreements);
  return problem.wrong();
}

}  // namespace

TEST_CASE("weigh_rows, weigh_rows_with_headroom and weigh_lanes give on a GPU what a softmax gives", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (int const tiles : {0, 1, 7}) {
    for (float const headroom : {0.0F, 8.0F}) {
      CHECK(wrong_weights<tile_words<float, 64, 32>, 64, 32, 128>(tiles, headroom) == "");
      CHECK(wrong_weights<tile_words<float, 8, 16>, 8, 16, 32>(tiles, headroom) == "");
      CHECK(wrong_weights<lane_words<float, 4, 64>, 4, 64, 32>(tiles, headroom) == "");
      CHECK(wrong_weights<warpgroup_words, 64, 32, 128>(tiles, headroom) == "");
    }
  }
}
