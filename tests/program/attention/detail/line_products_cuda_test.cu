// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tests sums of products that begin at terms on a line, where these are near, far apart, and not finite, against the
/// portable program on the CPU, which adds them in fp32.
#include <cstddef>
#include <limits>
#include <vector>

#include <tessera/map/linear_bias.hpp>
#include <tessera/program/attention/detail/line_products.cuh>
#include <tessera/sage_attention2.hpp>

#include "support/attention_terms.cuh"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("terms on a line may be too far apart for sums to begin at them on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  // Where queries and keys are normal, a tile of 128 channels has room for slopes up to about 2.
  for (float const slope : {0.6F, 1.5F, 2.5F, 7.0F}) {
    std::vector<float> const slopes{slope, -slope};
    auto const on_device = to_device(exec, slopes);
    for (std::int64_t const channels : {64, 128}) {
      CAPTURE(slope, channels);
      auto p = make_attention_problem<bfloat16>({1, 2, 1, 200, 700, channels});
      // Of every other tile scales of keys are so small that there is no room for any of these slopes.
      for (std::size_t i = 0; i < p.keys.size(); ++i) {
        bool const is_small = i / static_cast<std::size_t>(128 * channels) % 2 == 1;
        p.keys[i] = store<bfloat16>(load(p.keys[i]) * (is_small ? 0.01F : 1.0F));
      }
      check_against_cpu<sage_attention2>(p, linear_bias{on_device.view()}, linear_bias{slopes});
      p.options = causal;
      check_against_cpu<sage_attention2>(p, linear_bias{on_device.view()}, linear_bias{slopes});
    }
  }
}

TEST_CASE("queries and keys of zeros have terms on a line on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  std::vector<float> const slopes{0.03F, -0.5F};
  auto const on_device = to_device(exec, slopes);
  auto p = make_attention_problem<bfloat16>({1, 2, 2, 130, 390, 128});
  for (std::size_t i = 0; i < p.queries.size() / 2; ++i) {
    p.queries[i] = store<bfloat16>(0.0F);
  }
  for (std::size_t i = 0; i < std::size_t{150} * 128; ++i) {
    p.keys[i] = store<bfloat16>(0.0F);
  }
  check_against_cpu<sage_attention2>(p, linear_bias{on_device.view()}, linear_bias{slopes});
}

TEST_CASE("slopes that are not finite spoil the rows of their heads alone on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (float const odd : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> const slopes{0.1F, odd, -0.1F};
    auto const on_device = to_device(exec, slopes);
    auto const p = make_attention_problem<bfloat16>({1, 3, 1, 200, 300, 128});
    check_against_cpu<sage_attention2>(p, linear_bias{on_device.view()}, linear_bias{slopes});
  }
}
