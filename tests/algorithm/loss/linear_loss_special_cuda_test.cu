// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <tessera/cut_cross_entropy.hpp>

#include "algorithm/loss/special_values_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("NaNs and infinities reach the same results on a GPU as on the CPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_special_values<bfloat16>();
}

TEST_CASE("logits of any size make no NaNs on a GPU where the CPU has none", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (float const size : {1e4F, 1e6F, 1e9F, 1e12F, 1e20F}) {
    CAPTURE(size);
    auto p = special_problem<bfloat16>();
    for (std::size_t token = 0; token < 200; token += 3) {
      p.hidden[token * 32 + 7] = store<bfloat16>(token % 2 == 0 ? size : -size);
    }
    CHECK(check_kinds<exact_cross_entropy>(p) == 0);
    CHECK(check_kinds<exact_cross_entropy_of<bfloat16, loss_statistics>>(p) == 0);
    CHECK(check_kinds<cut_cross_entropy>(p, false) == 0);
    if (size <= 1e9F) {  // beyond it what softmaxes are relative to is rounded by more than 16 bits can hold
      p.options.workspace_budget = std::int64_t{64} << 20;
      CHECK(check_kinds<exact_cross_entropy>(p) == 0);
    }
  }
}

TEST_CASE("whole tiles of masked entries make no NaNs of kept softmaxes on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_loss_problem<bfloat16>(200, 800, 32, true);
  for (std::size_t entry = 0; entry < 800; ++entry) {  // tiles have 192 entries; all logits are near -300
    p.bias[entry] = store<bfloat16>(entry >= 192 && entry < 576 ? -INFINITY : -300.0F);
  }
  for (std::int64_t& label : p.labels) {
    label = label < 0 ? label : label % 192;
  }
  p.options.workspace_budget = std::int64_t{64} << 20;
  CHECK(check_kinds<exact_cross_entropy>(p) == 0);
  auto const found = run_on_device<exact_cross_entropy, bfloat16>(tessera::cuda{}, p);
  auto const expected = special_results_on_host<exact_cross_entropy>(p, true);
  CHECK(relative_distance(found.hidden, in_double(expected.hidden)) <= 8e-3);  // both are rounded
  CHECK(relative_distance(found.classifier, in_double(expected.classifier)) <= 8e-3);
}
