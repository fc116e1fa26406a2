// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"
#include "algorithm/loss/strict_executor.cuh"
#include "support/apart_gradients.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

constexpr double narrow = 1e-5;
constexpr double rounded = 4e-3;  // gradients of bf16

}  // namespace

TEST_CASE("the loss of fp16, tf32 and fp32, and other reducers, work on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_on_device<exact_cross_entropy_of<float16>, float16>(make_loss_problem<float16>(200, 300, 64), narrow, 1e-3);
  check_on_device<exact_cross_entropy_of<float>, float>(make_loss_problem<float>(200, 300, 64, true), narrow, narrow);
  check_on_device<exact_cross_entropy_of<tf32>, float>(make_loss_problem<float>(200, 300, 64), 4e-3, 1e-2);
  auto problem = make_loss_problem<bfloat16, std::int32_t>(200, 300, 64);
  problem.options.smoothing = 0.1F;
  check_on_device<exact_cross_entropy_of<bfloat16, loss_statistics>, bfloat16>(problem, narrow, rounded);
}

TEST_CASE("gradients of fp32 and tf32 are added to old ones on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_added_on_device<exact_cross_entropy_of<float>>(make_loss_problem<float>(200, 300, 64, true), narrow);
  check_added_on_device<exact_cross_entropy_of<float>>(make_loss_problem<float>(130, 129, 33), narrow);
  check_added_on_device<exact_cross_entropy_of<tf32>>(make_loss_problem<float>(200, 300, 64), 1e-2);
}

TEST_CASE("gradients of 16 bits need no room for lower halves of all tokens on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::vector<std::int64_t> const& extents :
       {std::vector<std::int64_t>{600, 2200, 200}, {600, 1100, 200}, {600, 900, 200}}) {
    check_all_apart<exact_cross_entropy, bfloat16>(strict<tessera::cuda>(), extents, rounded);
  }
  check_all_apart<exact_cross_entropy_of<float16>, float16>(strict<tessera::cuda>(), {600, 2200, 200}, 1e-3);
  check_all_apart<exact_cross_entropy, bfloat16>(tessera::cuda{}, {300, 1000, 137}, rounded);  // portable programs
}
