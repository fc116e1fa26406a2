// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/row_tile.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/two_products.hpp"

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

/// Checks that the words give on a GPU what they give on the host, exactly.
template <class T, int Rows, int Lanes>
void check_words() {
  CAPTURE(sizeof(T), Rows, Lanes);
  cuda const exec;
  two_products_problem<T, Rows> const problem;
  auto const a = on_device(exec, problem.a);
  auto const b = on_device(exec, problem.b);
  auto const c = on_device(exec, problem.c);
  auto results = on_device(exec, std::vector<float>(Rows * 24, 77.0F));
  auto largest = on_device(exec, std::vector<float>(Rows, 77.0F));
  auto sums = on_device(exec, std::vector<float>(Rows, 77.0F));
  two_products<T, Rows, Lanes> const program{{a.data(), {Rows, 16}},       {b.data(), {48, 16}}, {c.data(), {48, 24}},
                                             {results.data(), {Rows, 24}}, largest.view(),       sums.view()};
  exec.run(program, 1);
  CHECK(on_host(exec, largest) == problem.largest);
  CHECK(on_host(exec, sums) == problem.sums);
  CHECK(on_host(exec, results) == problem.results);
}

}  // namespace

TEST_CASE("row words on a GPU give what the serial ones give", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_words<bfloat16, 16, 32>();
  check_words<bfloat16, 64, 128>();
  check_words<bfloat16, 64, 32>();
  check_words<float16, 128, 256>();
  check_words<float16, 32, 64>();
  check_words<float, 32, 32>();
  check_words<float, 32, 128>();
}
