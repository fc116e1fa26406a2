// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/exec/buffer.hpp>

#include "algorithm/loss/linear_loss_map_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("losses and gradients of logits with a prior for each entry are right on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto const prior = log_prior_of(1000);
  buffer<float> const on_device = to_device(exec, prior);
  check_mapped_losses<bfloat16>(adjusted_by_prior{on_device.view(), 0.75F}, in_double(prior, 0.75F), 4e-3);
}

TEST_CASE("losses and gradients of logits with a temperature for each token are right on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto const heat = heat_of(300, 3.0F);
  buffer<float> const on_device = to_device(exec, heat);
  check_mapped_losses<float16>(heated_by_token{on_device.view(), 3.0F}, in_double(heat), 1e-3);
}
