// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/tile/codes/code_widening.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "tile/codes/coded_product.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Checks that products by codes give on a GPU what they give on the host, exactly.
template <class Code, int Rows, int Lanes>
void check_coded_words() {
  CAPTURE(sizeof(Code), Rows, Lanes);
  cuda const exec;
  coded_product_problem<Code, Rows> const problem;
  auto const a = to_device(exec, problem.a);
  auto const b = to_device(exec, problem.b);
  auto const codes = to_device(exec, problem.codes);
  auto results = to_device(exec, std::vector<float>(Rows * 64, 77.0F));
  auto sums = to_device(exec, std::vector<float>(Rows, 77.0F));
  coded_product<Code, Rows, Lanes> const program{{a.data(), {Rows, 32}},
                                                 {b.data(), {64, 32}},
                                                 {codes.data(), {64, 64}},
                                                 {results.data(), {Rows, 64}},
                                                 sums.view()};
  exec.run(program, 1);
  CHECK(to_host(exec, sums) == problem.sums);
  CHECK(to_host(exec, results) == problem.results);
}

}  // namespace

TEST_CASE("sums times codes in slots are on a GPU what they are on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_coded_words<float8_e4m3, 64, 64>();
  check_coded_words<float8_e4m3, 16, 32>();
  check_coded_words<float8_e5m2, 64, 128>();
  check_coded_words<std::int8_t, 32, 32>();
  check_coded_words<float16, 64, 64>();
  check_coded_words<bfloat16, 32, 64>();
}
