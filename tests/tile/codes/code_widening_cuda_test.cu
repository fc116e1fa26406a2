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
#include "tile/codes/coded_product.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class T>
buffer<T> on_device(cuda const& exec, std::vector<T> const& values) {
  buffer<T> copied(exec, static_cast<std::int64_t>(values.size()));
  exec.copy(values, copied);
  return copied;
}
template <class T>
std::vector<T> on_host(cuda const& exec, buffer<T> const& values) {
  std::vector<T> copied(static_cast<std::size_t>(values.size()));
  exec.copy(values, copied);
  exec.wait();
  return copied;
}

/// Checks that products by codes give on a GPU what they give on the host, exactly.
template <class Code, int Rows, int Lanes>
void check_coded_words() {
  CAPTURE(sizeof(Code), Rows, Lanes);
  cuda const exec;
  coded_product_problem<Code, Rows> const problem;
  auto const a = on_device(exec, problem.a);
  auto const b = on_device(exec, problem.b);
  auto const codes = on_device(exec, problem.codes);
  auto results = on_device(exec, std::vector<float>(Rows * 64, 77.0F));
  auto sums = on_device(exec, std::vector<float>(Rows, 77.0F));
  coded_product<Code, Rows, Lanes> const program{{a.data(), {Rows, 32}},
                                                 {b.data(), {64, 32}},
                                                 {codes.data(), {64, 64}},
                                                 {results.data(), {Rows, 64}},
                                                 sums.view()};
  exec.run(program, 1);
  CHECK(on_host(exec, sums) == problem.sums);
  CHECK(on_host(exec, results) == problem.results);
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
