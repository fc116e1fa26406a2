// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tests biases, and smoothed queries, within lists of tiles of the type.
#include <cstdint>
#include <vector>

#include <tessera/map/dense_bias.hpp>
#include <tessera/map/linear_bias.hpp>

#include "support/attention_terms.cuh"
#include "support/listed_tiles.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

std::vector<attention_problem<bfloat16>> problems() {
  std::vector<attention_problem<bfloat16>> all;
  for (std::int64_t const channels : {64, 128, 256}) {
    for (list_kind const kind : {list_kind::half, list_kind::hostile}) {
      all.push_back(make_attention_problem<bfloat16>({2, 2, 1, 260, 712, channels}));
      all.back().options.is_causal = channels == 128;
      set_lists(all.back(), kind);
    }
  }
  return all;
}

}  // namespace

TEST_CASE("linear and dense biases are added to scores within lists of tiles on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  std::vector<float> const slopes{0.25F, 0.0625F};
  auto const device_slopes = to_device(exec, slopes);
  auto const values = make_biases(260, 712, 1.0F);
  std::vector<bfloat16> biases;
  for (float const value : values) {
    biases.push_back(store<bfloat16>(value));
  }
  auto const device_biases = to_device(exec, biases);
  auto const dense_of = [](bfloat16 const* data) {
    return dense_bias<bfloat16>{{data, {2, 2, 260, 712}, {0, 0, 712, 1}}};
  };
  for (auto const& p : problems()) {
    check_listed<sage_attention2>(p, linear_bias{device_slopes.view()}, linear_bias{slopes});
    check_listed<sage_attention2>(p, dense_of(device_biases.data()), dense_of(biases.data()));
  }
}

TEST_CASE("smoothed queries get the scores of their means within lists of tiles on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (auto const& p : problems()) {
    check_listed<smoothed_queries>(p);
  }
}
