// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/algorithm/loss/linear_distillation.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cuda.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/stored_distillation.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("classifiers of distillation are sources on a GPU, too", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda exec;
  exec.options.refuses_slower_programs = true;
  auto p = make_distillation_problem<bfloat16>({301, 1001, 136, 72}, true);
  add_biases(p);
  p.options.softcap = 4.0F;
  p.options.workspace_budget = 1;
  check_stored_distillation<master_rows, row_scaled<bfloat16>, bfloat16>(exec, p, 4e-3);
  p.options.workspace_budget = 0;
  check_stored_distillation<row_scaled<bfloat16>, row_scaled<bfloat16>, float>(exec, p, 4e-3);
  p.options.workspace_budget = std::int64_t{8} << 20;  // gradients by logits are kept
  check_stored_distillation<row_scaled<bfloat16>, row_scaled<bfloat16>, float>(exec, p, 4e-3);
}
