// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <vector>

#include <tessera/map/linear_bias.hpp>

#include "support/attention_terms.cuh"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("a linear bias is added by tensor cores' attention, steep ones and those of one side of the mask", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (float const steepest : {0.05F, 3.0F, 300.0F}) {
    std::vector<float> const slopes{steepest, -steepest / 3, 0.0F};
    auto const on_device = to_device(exec, slopes);
    for (attention_shape const& shape :
         {attention_shape{1, 3, 1, 200, 264, 64}, attention_shape{2, 3, 3, 129, 400, 128},
          attention_shape{1, 3, 1, 65, 300, 256}}) {
      for (attention_options const& options : {attention_options{}, causal}) {
        CAPTURE(steepest);
        auto p = make_attention_problem<bfloat16>(shape);
        p.options = options;
        check_against_cpu<sage_attention2>(p, linear_bias{on_device.view()}, linear_bias{slopes});
        check_against_cpu<smoothed_queries>(p, linear_bias{on_device.view()}, linear_bias{slopes});
      }
    }
  }
}
