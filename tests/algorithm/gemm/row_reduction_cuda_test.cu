// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <cstring>

#include <tessera/algorithm/gemm/row_reduction.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/reduce/absolute_maximum.hpp>
#include <tessera/reduce/minimum_maximum.hpp>

#include "algorithm/gemm/row_samples.hpp"
#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("rows of all lengths have the log-sum-exps of a loop in double, on the GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  for (std::int64_t const columns : {0, 1, 7, 8, 31, 255, 256, 257, 1023, 8191, 8192, 8193, 128'256}) {
    check_log_sum_exps<float>(exec, 3, columns, false);
    check_log_sum_exps<bfloat16>(exec, 3, columns, false);
    check_log_sum_exps<bfloat16>(exec, 3, columns, true);
  }
  check_log_sum_exps<float>(exec, 0, 100, false);
  check_log_sum_exps<bfloat16>(exec, 1000, 576, false);
}

TEST_CASE("rows are reduced on the GPU to the bits that the CPU has", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const columns : {1, 9, 300, 8192, 16385}) {
    check_arg_max(cuda(), 5, columns);
    row_samples<bfloat16> const samples(37, columns, false);
    auto const expected = reduced<minimum_maximum_reducer<float>>(cpu{.threads = 1}, samples);
    auto const found = reduced<minimum_maximum_reducer<float>>(cuda(), samples);
    CHECK(std::memcmp(found.data(), expected.data(), found.size() * sizeof(found[0])) == 0);
  }
}
